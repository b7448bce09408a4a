"""Answer every error with the body of OpenAI's API: `{"error": {"message", "type", "param", "code", "problems"}}`.

`problems` is an addition of ours.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from orchestrator.engine.errors import BadRequest, EngineError, PromptTooLong
from orchestrator.errors import InputError, OrchestratorError
from orchestrator.journal import DiskFull, JournalClosed, ObjectMissing, UnknownChat, UnknownRun
from orchestrator.planning import PlanError
from orchestrator.pool import ModelPinned, ModelRemote, PoolError, UnknownModel
from orchestrator.service.errors import Busy, Conflict, FolderFull, MemoryUnavailable, NotReady

log = structlog.get_logger(__name__)


class ProblemBody(BaseModel):
    """One thing that is wrong with a request."""

    where: str
    """The field, option or setting."""
    what: str
    """What is wrong with it."""
    accepted: str = ""
    """What would be accepted in its place."""


class ErrorDetail(BaseModel):
    """What went wrong."""

    message: str
    type: str
    """The kind of error, as OpenAI's API names it."""
    param: str | None = None
    """Where the first of the problems is."""
    code: str | None = None
    """The error's own name, for programs."""
    problems: list[ProblemBody] = Field(default_factory=list)


class ErrorBody(BaseModel):
    """The body of every answer whose status is not a success."""

    error: ErrorDetail


class RunFailed(OrchestratorError):
    """The run that should have answered a chat ended without an answer. Sending the request again starts a new run."""


class AnswerRefused(OrchestratorError):
    """The answers of a model, also those to which it was asked again, do not obey what the request prescribes."""


DOCUMENTED: Final[Mapping[int | str, dict[str, Any]]] = {
    "4XX": {"model": ErrorBody, "description": "The request cannot be carried out; the error says why."},
    "5XX": {"model": ErrorBody, "description": "The daemon cannot carry it out; the error says why."},
}

CONTEXT_LENGTH: Final = "context_length_exceeded"
"""The code by which clients know that a prompt is too long for the model's context."""

_STATUS: Final[tuple[tuple[type[OrchestratorError], HTTPStatus], ...]] = (
    (InputError, HTTPStatus.BAD_REQUEST),
    (RunFailed, HTTPStatus.UNPROCESSABLE_ENTITY),  # clients try again after a 5xx
    (AnswerRefused, HTTPStatus.UNPROCESSABLE_ENTITY),
    (UnknownRun, HTTPStatus.NOT_FOUND),
    (UnknownChat, HTTPStatus.NOT_FOUND),
    (ObjectMissing, HTTPStatus.NOT_FOUND),
    (Conflict, HTTPStatus.CONFLICT),
    (Busy, HTTPStatus.TOO_MANY_REQUESTS),
    (NotReady, HTTPStatus.SERVICE_UNAVAILABLE),
    (MemoryUnavailable, HTTPStatus.SERVICE_UNAVAILABLE),
    (JournalClosed, HTTPStatus.SERVICE_UNAVAILABLE),
    (FolderFull, HTTPStatus.INSUFFICIENT_STORAGE),
    (DiskFull, HTTPStatus.INSUFFICIENT_STORAGE),
    (UnknownModel, HTTPStatus.NOT_FOUND),
    (ModelPinned, HTTPStatus.CONFLICT),
    (ModelRemote, HTTPStatus.CONFLICT),
    (PoolError, HTTPStatus.SERVICE_UNAVAILABLE),
    (BadRequest, HTTPStatus.BAD_REQUEST),
    (EngineError, HTTPStatus.BAD_GATEWAY),
    (PlanError, HTTPStatus.BAD_GATEWAY),
    (OrchestratorError, HTTPStatus.INTERNAL_SERVER_ERROR),
)


class NotFound(OrchestratorError):
    """There is nothing at the address, or under the name, that a request gives."""


class UnknownName(NotFound):
    """No model can be used under the name that a request gives as `model`."""


def error_detail(error: OrchestratorError) -> ErrorDetail:
    """Return what the answer says of an error."""
    problems = error.problems if isinstance(error, InputError) else ()
    return ErrorDetail(
        message=str(error),
        type=_error_type(status_of(error)),
        param=problems[0].where if problems else None,
        code=CONTEXT_LENGTH if isinstance(error, PromptTooLong) else _snake(type(error).__name__),
        problems=[ProblemBody(where=item.where, what=item.what, accepted=item.accepted) for item in problems],
    )


def status_of(error: OrchestratorError) -> int:
    """Return the HTTP status that answers an error."""
    if isinstance(error, NotFound):
        return HTTPStatus.NOT_FOUND
    if isinstance(error, PlanError) and error.failure.final:
        return HTTPStatus.BAD_REQUEST
    return next(status for kind, status in _STATUS if isinstance(error, kind))


def error_response(status: int, message: str, code: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return an answer with an `ErrorBody`."""
    body = ErrorBody(error=ErrorDetail(message=message, type=_error_type(status), code=code))
    return JSONResponse(body.model_dump(), status, dict(headers or {}))


def add_error_handlers(app: FastAPI) -> None:
    """Have the application answer every error with an `ErrorBody`."""
    app.add_exception_handler(OrchestratorError, _handle_ours)
    app.add_exception_handler(RequestValidationError, _handle_invalid)
    app.add_exception_handler(HTTPException, _handle_http)
    app.add_exception_handler(Exception, _handle_defect)


async def _handle_ours(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, OrchestratorError)
    status = status_of(error)
    headers = {"Retry-After": str(error.retry_seconds)} if isinstance(error, Busy | NotReady) else None
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        log.warning("a request failed", path=request.url.path, status=status, error=str(error))
    return JSONResponse(ErrorBody(error=error_detail(error)).model_dump(), status, headers)


async def _handle_invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    problems = [ProblemBody(where="/".join(map(str, item["loc"])), what=str(item["msg"])) for item in error.errors()]
    if any(item["loc"] == ("body",) for item in error.errors()) and not _is_json(request):
        kind = request.headers.get("content-type", "missing")
        problems = [
            ProblemBody(where="header Content-Type", what=f"is {kind}", accepted="Content-Type: application/json")
        ]
    message = "; ".join(f"{item.where}: {item.what}" for item in problems[:5])
    detail = ErrorDetail(
        message=message, type=_error_type(400), param=problems[0].where, code="invalid_request", problems=problems
    )
    return JSONResponse(ErrorBody(error=detail).model_dump(), HTTPStatus.BAD_REQUEST)


def _is_json(request: Request) -> bool:
    return "json" in request.headers.get("content-type", "").lower()


async def _handle_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    phrases = (one.phrase for one in HTTPStatus if one == error.status_code)
    code = next(phrases, "client closed request").lower().replace(" ", "_").replace("-", "_")
    message = f"{request.method} {request.url.path}: {error.detail}"
    return error_response(error.status_code, message, code, error.headers)


async def _handle_defect(request: Request, error: Exception) -> JSONResponse:
    log.error("a request failed because of a defect", path=request.url.path, exc_info=error)
    return error_response(HTTPStatus.INTERNAL_SERVER_ERROR, f"internal error: {type(error).__name__}", "internal_error")


def _error_type(status: int) -> str:
    match status:
        case 401 | 403:
            return "authentication_error"
        case 429:
            return "rate_limit_error"
        case _:
            return "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error"


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
