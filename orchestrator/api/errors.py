"""Answer every error with the body of OpenAI's API: `{"error": {"message", "type", "param", "code", "problems"}}`.

`problems` is an addition of ours. Below `/v1/messages` the body is that of Anthropic's API.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, Literal

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from orchestrator.engine.errors import BadRequest, EngineError, PromptTooLong
from orchestrator.errors import InputError, OrchestratorError, Problem
from orchestrator.pool import ModelBroken, ModelPinned, ModelRemote, PoolError, UnknownModel
from orchestrator.pool.remote import RemoteResting
from orchestrator.run.journal import DiskFull, JournalClosed, ObjectMissing, UnknownChat, UnknownRun
from orchestrator.run.planning import PlanError
from orchestrator.service.callers import Forbidden
from orchestrator.service.errors import Busy, Conflict, FolderFull, MemoryUnavailable, NotReady
from orchestrator.service.stored_responses import UnknownResponse
from orchestrator.service.uploaded_files import UnknownFile
from procedures.errors import (
    ChangedMeanwhile,
    PlanUnusable,
    ProcedureBusy,
    ProcedureError,
    ProcedureForbidden,
    ProcedureInvalid,
    ProcedureRefused,
    UnknownExecution,
    UnknownProcedure,
)
from registry.errors import RegistryProblem

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
    run_id: str | None = Field(default=None, exclude_if=lambda run: run is None)
    """The run that has failed to answer, where one has."""
    n_prompt_tokens: int | None = Field(default=None, exclude_if=lambda count: count is None)
    """How many tokens a prompt has that is too long, as llama-server calls it."""
    n_ctx: int | None = Field(default=None, exclude_if=lambda count: count is None)
    """How many tokens prompt and answer may have together, where the prompt is too long."""


class ErrorBody(BaseModel):
    """The body of every answer whose status is not a success."""

    error: ErrorDetail


class MessagesErrorDetail(BaseModel):
    """What went wrong, as Anthropic's API says it."""

    type: str
    message: str
    details: dict[str, str] | None = Field(default=None, exclude_if=lambda details: details is None)
    """The error's own name as `error_code`, where clients act on it: of the errors of threads."""


class MessagesErrorBody(BaseModel):
    """The body of every answer below `/v1/messages` whose status is not a success."""

    type: Literal["error"] = "error"
    error: MessagesErrorDetail


class RunFailed(OrchestratorError):
    """The run that should have answered a chat ended without an answer.

    Sending the request again starts a new run, unless it has the same idempotency key.
    """

    def __init__(self, message: str, run: str) -> None:
        super().__init__(message)
        self.run = run


class ThreadNotFound(OrchestratorError):
    """A request goes on with an answer whose thread is not kept. Clients send the whole conversation then."""


class ThreadFingerprintMismatch(InputError):
    """A request goes on with a thread, and has another system prompt or other tools than that."""


class TooLarge(InputError):
    """A part of a request is larger than can be worked on in one go."""


class AnswerRefused(OrchestratorError):
    """The answers of a model, also those to which it was asked again, do not obey what the request prescribes."""


DOCUMENTED: Final[Mapping[int | str, dict[str, Any]]] = {
    "4XX": {"model": ErrorBody, "description": "The request cannot be carried out; the error says why."},
    "5XX": {"model": ErrorBody, "description": "The daemon cannot carry it out; the error says why."},
}

MESSAGES_DOCUMENTED: Final[Mapping[int | str, dict[str, Any]]] = {
    status: {**documented, "model": MessagesErrorBody} for status, documented in DOCUMENTED.items()
}
"""The same for the endpoints below `/v1/messages`."""
MESSAGES_PATH: Final = "/v1/messages"
_MESSAGES_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
"""How Anthropic's API names errors, by status. Others are `invalid_request_error` up to 499, and `api_error` above."""
_SHOWN_PROBLEMS: Final = 5
"""How many problems of an invalid body the message says."""
_WEIGHED_ERRORS: Final = 1000
"""How many errors of an invalid body are looked at. A body can have one at each of millions of places."""
_COUNTED: Final = {
    "too_short": "{field_type} of {min_length} or more",
    "too_long": "{field_type} of {max_length} or fewer",
    "string_too_short": "string of {min_length} or more characters",
    "string_too_long": "string of {max_length} or fewer characters",
    "string_pattern_mismatch": "string that matches {pattern}",
}
"""What is accepted where pydantic's message does not say it in words for users, by the type of its error."""
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)
_SHOWN_CHARACTERS: Final = 80
"""How much of a value that is wrong a message shows."""

RUN_HEADER: Final = "X-Run-Id"
DOUBT_HEADER: Final = "X-Run-Doubt"
"""The header that names the run that answers a request, or has failed to."""

CONTEXT_LENGTH: Final = "context_length_exceeded"
"""The code by which clients know that a prompt is too long for the model's context."""

_STATUS: Final[tuple[tuple[type[OrchestratorError], HTTPStatus], ...]] = (
    (TooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (InputError, HTTPStatus.BAD_REQUEST),
    (RunFailed, HTTPStatus.UNPROCESSABLE_ENTITY),  # clients try again after a 5xx
    (AnswerRefused, HTTPStatus.UNPROCESSABLE_ENTITY),
    (Forbidden, HTTPStatus.FORBIDDEN),
    (UnknownRun, HTTPStatus.NOT_FOUND),
    (UnknownChat, HTTPStatus.NOT_FOUND),
    (UnknownResponse, HTTPStatus.NOT_FOUND),
    (ThreadNotFound, HTTPStatus.NOT_FOUND),
    (UnknownFile, HTTPStatus.NOT_FOUND),
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
    (RemoteResting, HTTPStatus.SERVICE_UNAVAILABLE),
    (EngineError, HTTPStatus.BAD_GATEWAY),
    (PlanError, HTTPStatus.BAD_GATEWAY),
    (OrchestratorError, HTTPStatus.INTERNAL_SERVER_ERROR),
)


_PROCEDURE_STATUS: Final[tuple[tuple[type[ProcedureError], HTTPStatus], ...]] = (
    (UnknownProcedure, HTTPStatus.NOT_FOUND),
    (UnknownExecution, HTTPStatus.NOT_FOUND),
    (ProcedureInvalid, HTTPStatus.BAD_REQUEST),
    (ProcedureForbidden, HTTPStatus.FORBIDDEN),
    (ProcedureRefused, HTTPStatus.CONFLICT),
    (ChangedMeanwhile, HTTPStatus.CONFLICT),
    (PlanUnusable, HTTPStatus.GONE),
    (ProcedureBusy, HTTPStatus.CONFLICT),
    (ProcedureError, HTTPStatus.INTERNAL_SERVER_ERROR),
)


class NotFound(OrchestratorError):
    """There is nothing at the address, or under the name, that a request gives."""


class UnknownName(NotFound):
    """No model can be used under the name that a request gives as `model`."""


def error_detail(error: OrchestratorError) -> ErrorDetail:
    """Return what the answer says of an error."""
    problems = error.problems if isinstance(error, InputError) else ()
    too_long = error if isinstance(error, PromptTooLong) else None
    return ErrorDetail(
        message=str(error),
        type=_error_type(status_of(error)),
        param=problems[0].where if problems else None,
        code=CONTEXT_LENGTH if too_long else _snake(type(error).__name__),
        problems=[ProblemBody(where=item.where, what=item.what, accepted=item.accepted) for item in problems],
        run_id=error.run if isinstance(error, RunFailed) else None,
        n_prompt_tokens=too_long.tokens or None if too_long else None,
        n_ctx=too_long.limit or None if too_long else None,
    )


def status_of(error: OrchestratorError) -> int:
    """Return the HTTP status that answers an error."""
    if isinstance(error, NotFound):
        return HTTPStatus.NOT_FOUND
    if isinstance(error, PlanError) and error.failure.final:
        return HTTPStatus.BAD_REQUEST
    return next(status for kind, status in _STATUS if isinstance(error, kind))


def error_response(
    status: int, message: str, code: str, headers: Mapping[str, str] | None = None, *, path: str = ""
) -> JSONResponse:
    """Return an answer with an `ErrorBody`, or for a `path` below `/v1/messages` with a `MessagesErrorBody`."""
    return _answer(path, status, ErrorDetail(message=message, type=_error_type(status), code=code), headers)


def messages_error(status: int, message: str, code: str | None = None) -> MessagesErrorBody:
    """Return the body of an error, whose own name is `code`, as Anthropic's API has it."""
    details = {"error_code": code} if code is not None and code.startswith("thread_") else None
    usual = "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "api_error"
    detail = MessagesErrorDetail(type=_MESSAGES_TYPES.get(status, usual), message=message, details=details)
    return MessagesErrorBody(error=detail)


def _answer(path: str, status: int, detail: ErrorDetail, headers: Mapping[str, str] | None = None) -> JSONResponse:
    body: BaseModel = ErrorBody(error=detail)
    if path == MESSAGES_PATH or path.startswith(f"{MESSAGES_PATH}/"):
        body = messages_error(status, detail.message, detail.code)
    return JSONResponse(body.model_dump(), status, dict(headers or {}))


def add_error_handlers(app: FastAPI) -> None:
    """Have the application answer every error with an `ErrorBody`."""
    app.add_exception_handler(OrchestratorError, _handle_ours)
    app.add_exception_handler(ProcedureError, _handle_procedure)
    app.add_exception_handler(RequestValidationError, _handle_invalid)
    app.add_exception_handler(HTTPException, _handle_http)
    app.add_exception_handler(Exception, _handle_defect)


async def _handle_ours(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, OrchestratorError)
    status = status_of(error)
    headers: dict[str, str] = {}
    if isinstance(error, Busy | NotReady):
        headers["Retry-After"] = str(error.retry_seconds)
    if isinstance(error, ModelBroken):
        headers["Retry-After"] = str(math.ceil(error.retry_seconds))
    if isinstance(error, RemoteResting):
        headers["Retry-After"] = str(math.ceil(error.retry_after or 1))
    if isinstance(error, RunFailed):
        headers[RUN_HEADER] = error.run
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        log.warning("a request failed", path=request.url.path, status=status, error=str(error))
    if isinstance(error, Forbidden):
        log.warning("a request was refused", path=request.url.path, error=str(error))
    return _answer(request.url.path, status, error_detail(error), headers)


async def _handle_procedure(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ProcedureError)
    status = next(status for kind, status in _PROCEDURE_STATUS if isinstance(error, kind))
    problems: list[ProblemBody] = []
    match error:
        case ProcedureInvalid():
            problems = [_procedure_problem(item) for item in error.problems]
        case UnknownProcedure():
            what = f"there is no procedure {error.name!r}"
            problems = [ProblemBody(where="procedure", what=what, accepted=error.accepted)]
        case UnknownExecution():
            what, accepted = f"there is no execution {error.execution!r}", "one that the history of procedures lists"
            problems = [ProblemBody(where="execution", what=what, accepted=accepted)]
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        log.warning("a request failed", path=request.url.path, status=status, error=str(error))
    detail = ErrorDetail(
        message=str(error),
        type=_error_type(status),
        param=problems[0].where if problems else None,
        code=_snake(type(error).__name__),
        problems=problems,
    )
    return JSONResponse(ErrorBody(error=detail).model_dump(), status)


def _procedure_problem(item: RegistryProblem) -> ProblemBody:
    place = f"{item.file}:{item.line}" if item.line is not None else str(item.file)
    return ProblemBody(where=f"{place}: {item.key}" if item.key else place, what=item.what, accepted=item.accepted)


async def _handle_invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    problems = list(plain_problems(error.errors(), error.body))
    if any(item["loc"] == ("body",) for item in error.errors()) and not _is_json(request):
        kind = request.headers.get("content-type", "missing")
        problems = [
            ProblemBody(where="header Content-Type", what=f"is {kind}", accepted="Content-Type: application/json")
        ]
    message = "; ".join(_sentence(item) for item in problems[:_SHOWN_PROBLEMS])
    detail = ErrorDetail(
        message=message, type=_error_type(400), param=problems[0].where, code="invalid_request", problems=problems
    )
    return _answer(request.url.path, HTTPStatus.BAD_REQUEST, detail)


def plain_problems(errors: Sequence[Any], body: object) -> Iterator[ProblemBody]:
    """Yield what is wrong with a request, from the errors of pydantic.

    Where a value may have several forms, pydantic has an error for each of them, and its path names the form. Here it
    is one problem, at the deepest place that an error is about, and the path has nothing but names and numbers that
    the request itself has, or lacks.
    """
    found: dict[str, list[Any]] = {}
    for error in errors[:_WEIGHED_ERRORS]:
        if error["type"] == "json_invalid":
            what = f"is no JSON: {error['ctx']['error']}, at character {error['loc'][-1]}"
            yield ProblemBody(where="body", what=what, accepted="a JSON object")
            return
        found.setdefault("/".join(_path(error, body)) or "body", []).append(error)
    containers = {where[:end] for where in found for end, sign in enumerate(where) if sign == "/"}
    for where, alike in found.items():
        if where in containers:
            continue  # another form of the value was recognised, and something inside of it is wrong
        accepted = dict.fromkeys(_accepted(error) for error in alike if _accepted(error))
        given = "is missing" if alike[0]["type"] == "missing" else f"is {_shown(alike[0].get('input'))}"
        told = next((str(error["ctx"]["error"]) for error in alike if "error" in error.get("ctx", {})), "")
        if told.startswith("Expected UploadFile"):
            yield ProblemBody(where=where, what="is a text", accepted="a file: a part with a filename")
        elif told or not accepted:
            yield ProblemBody(where=where, what=told or _plain_message(alike[0]))
        else:
            yield ProblemBody(where=where, what=given, accepted=" or ".join(accepted))


def _path(error: Any, body: object) -> Iterator[str]:
    """Yield the parts of a path, without the names that pydantic gives to the forms of a value."""
    source, *parts = error["loc"]
    if source != "body":
        yield str(source)
        yield from map(str, parts)
        return
    value = body
    for index, part in enumerate(parts):
        is_lacking = error["type"] in ("missing", "extra_forbidden") and index == len(parts) - 1
        if isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        elif isinstance(value, Mapping) and part in value:
            value = value[part]
        elif not is_lacking:
            continue
        yield str(part)


def _accepted(error: Any) -> str:
    """Return what would be accepted, from a message such as `Input should be a valid string`; empty for others."""
    counted = _COUNTED.get(error["type"])
    if counted is not None:
        context = error["ctx"]
        kind = {"Dictionary": "object"}.get(str(context.get("field_type")), "list")
        return counted.format(**{**context, "field_type": kind})
    text = str(error["msg"])
    if not text.startswith("Input should be "):
        return ""
    wanted = text.removeprefix("Input should be ").removeprefix("a valid ").partition(", unable to")[0]
    return "object" if wanted.startswith("dictionary") else wanted


def _plain_message(error: Any) -> str:
    known = {"missing": "is missing", "extra_forbidden": "is not known"}
    return known.get(error["type"], str(error["msg"]).removeprefix("Value error, "))


def _shown(value: object) -> str:
    """Return a value that was given as JSON, cut after 80 characters."""
    text = ""
    try:
        for piece in _ENCODER.iterencode(value):  # piece by piece, since the value may be large
            text += piece
            if len(text) > _SHOWN_CHARACTERS:
                break
        text = text.encode(errors="replace").decode()
    except (TypeError, ValueError, RecursionError):
        return "no JSON"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _sentence(problem: ProblemBody) -> str:
    return str(Problem(problem.where, problem.what, problem.accepted))


def _is_json(request: Request) -> bool:
    return "json" in request.headers.get("content-type", "").lower()


async def _handle_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return http_error_response(request.method, request.url.path, error)


def http_error_response(method: str, path: str, error: HTTPException) -> JSONResponse:
    """Return the answer to a request that fails with this error."""
    phrases = (one.phrase for one in HTTPStatus if one == error.status_code)
    code = next(phrases, "client closed request").lower().replace(" ", "_").replace("-", "_")
    return error_response(error.status_code, f"{method} {path}: {error.detail}", code, error.headers, path=path)


async def _handle_defect(request: Request, error: Exception) -> JSONResponse:
    log.error("a request failed because of a defect", path=request.url.path, exc_info=error)
    message = f"internal error: {type(error).__name__}"
    return error_response(HTTPStatus.INTERNAL_SERVER_ERROR, message, "internal_error", path=request.url.path)


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
