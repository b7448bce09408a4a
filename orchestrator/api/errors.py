"""Answer every error with the body of OpenAI's API: `{"error": {"message", "type", "param", "code", "problems"}}`.

`problems` is an addition of ours. Below `/v1/messages` the body is that of Anthropic's API.
"""

import json
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
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
from orchestrator.pool.errors import (
    ModelBroken,
    ModelPinned,
    ModelRemote,
    PoolError,
    UnknownModel,
)
from orchestrator.pool.remote.errors import RemoteResting
from orchestrator.run.journal.errors import DiskFull, JournalClosed, ObjectMissing, UnknownChat, UnknownRun
from orchestrator.run.planning import PlanError
from orchestrator.service.callers import Forbidden
from orchestrator.service.errors import Busy, Conflict, FolderFull, NotReady, Unavailable
from orchestrator.service.stored_responses import UnknownResponse
from orchestrator.service.uploaded_files import UnknownFile

ErrorHandler = Callable[[Request, Exception], Awaitable[JSONResponse]]

log = structlog.get_logger(__name__)


class ProblemBody(BaseModel):
    """One thing that is wrong with a request."""

    where: str  # the field, option or setting
    what: str
    accepted: str = ""


class ErrorDetail(BaseModel):
    """What went wrong."""

    message: str
    type: str  # as OpenAI's API names it
    param: str | None = None  # `where` of the first problem
    code: str | None = None  # the error's own name, for programs
    problems: list[ProblemBody] = Field(default_factory=list)
    run_id: str | None = Field(default=None, exclude_if=lambda run: run is None)  # the run that failed to answer
    # Of a prompt that is too long, with llama-server's names: its tokens, and the limit for prompt and answer together.
    n_prompt_tokens: int | None = Field(default=None, exclude_if=lambda count: count is None)
    n_ctx: int | None = Field(default=None, exclude_if=lambda count: count is None)


class ErrorBody(BaseModel):
    """The body of every answer whose status is not a success."""

    error: ErrorDetail


class MessagesErrorDetail(BaseModel):
    """What went wrong, as Anthropic's API says it."""

    type: str
    message: str
    # `error_code` is the error's own name. Only errors of threads have it, since clients act on these.
    details: dict[str, str] | None = Field(default=None, exclude_if=lambda details: details is None)


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
    """The thread that a request continues is not kept. Clients then send the whole conversation."""


class ThreadFingerprintMismatch(InputError):
    """A request continues a thread with a different system prompt or different tools."""


class TooLarge(InputError):
    """A part of a request is too large to be processed in one go."""


class AnswerRefused(OrchestratorError):
    """No answer of the model, retries included, obeys what the request prescribes."""


DOCUMENTED: Final[Mapping[int | str, dict[str, Any]]] = {
    "4XX": {"model": ErrorBody, "description": "The request cannot be carried out; the error says why."},
    "5XX": {"model": ErrorBody, "description": "The daemon cannot carry it out; the error says why."},
}

MESSAGES_DOCUMENTED: Final[Mapping[int | str, dict[str, Any]]] = {
    status: {**documented, "model": MessagesErrorBody} for status, documented in DOCUMENTED.items()
}
MESSAGES_PATH: Final = "/v1/messages"
# By status. All others are `invalid_request_error` up to 499, and `api_error` above.
_MESSAGES_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_SHOWN_PROBLEMS: Final = 5  # in the message about an invalid body
_WEIGHED_ERRORS: Final = 1000  # an invalid body can have millions
# What is accepted, by the type of pydantic's error, for messages of pydantic that do not say it in words for users.
_COUNTED: Final = {
    "too_short": "{field_type} of {min_length} or more",
    "too_long": "{field_type} of {max_length} or fewer",
    "string_too_short": "string of {min_length} or more characters",
    "string_too_long": "string of {max_length} or fewer characters",
    "string_pattern_mismatch": "string that matches {pattern}",
}
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)
_SHOWN_CHARACTERS: Final = 80  # of a wrong value in a message

RUN_HEADER: Final = "X-Run-Id"  # the run that answers a request, or has failed to
DOUBT_HEADER: Final = "X-Run-Doubt"

CONTEXT_LENGTH: Final = "context_length_exceeded"  # clients recognise a prompt that is too long by this code

# The first match counts, so subclasses come before their bases.
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
    (Unavailable, HTTPStatus.SERVICE_UNAVAILABLE),
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


class NotFound(OrchestratorError):
    """There is nothing at the address, or under the name, in a request."""


class UnknownName(NotFound):
    """A request's `model` is the name of no usable model."""


def error_detail(error: OrchestratorError) -> ErrorDetail:
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
    if isinstance(error, NotFound):
        return HTTPStatus.NOT_FOUND
    if isinstance(error, PlanError) and error.failure.final:
        return HTTPStatus.BAD_REQUEST
    return next(status for kind, status in _STATUS if isinstance(error, kind))


def error_response(
    status: int, message: str, code: str, headers: Mapping[str, str] | None = None, *, path: str = ""
) -> JSONResponse:
    """Return an answer with an `ErrorBody`, or for a `path` below `/v1/messages` a `MessagesErrorBody`."""
    return _answer(path, status, ErrorDetail(message=message, type=_error_type(status), code=code), headers)


def messages_error(status: int, message: str, code: str | None = None) -> MessagesErrorBody:
    """Return the body of an error in the form of Anthropic's API. `code` is the error's own name."""
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
    app.add_exception_handler(OrchestratorError, _handle_ours)
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


def answer_error(request: Request, error: Exception, status: int, problems: Sequence[Problem] = ()) -> JSONResponse:
    """Return the answer to an error from outside the core. `problems` say what is wrong with the request."""
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        log.warning("a request failed", path=request.url.path, status=status, error=str(error))
    detail = ErrorDetail(
        message=str(error),
        type=_error_type(status),
        param=problems[0].where if problems else None,
        code=_snake(type(error).__name__),
        problems=[ProblemBody(where=item.where, what=item.what, accepted=item.accepted) for item in problems],
    )
    return _answer(request.url.path, status, detail)


async def _handle_invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    problems = list(plain_problems(error.errors(), error.body, _fields(request)))
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


def _fields(request: Request) -> tuple[str, ...]:
    # The names of the fields that the body may have.
    body = getattr(request.scope.get("route"), "body_field", None)
    model = body.field_info.annotation if body is not None else None
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return ()
    return tuple(sorted(info.alias or name for name, info in model.model_fields.items()))


def plain_problems(errors: Sequence[Any], body: object, fields: Sequence[str] = ()) -> Iterator[ProblemBody]:
    """Yield what is wrong with a request, from the errors of pydantic.

    If a value may have several forms, pydantic reports an error for each, with the form in the path. Here it is one
    problem, at the deepest place with an error, and the path has only what the request has or lacks. `fields` are those
    that the body may have.
    """
    by_place: dict[str, list[Any]] = {}
    for error in errors[:_WEIGHED_ERRORS]:
        if error["type"] == "json_invalid":
            text = f"is no JSON: {error['ctx']['error']}, at character {error['loc'][-1]}"
            yield ProblemBody(where="body", what=text, accepted="a JSON object")
            return
        by_place.setdefault("/".join(_path(error, body)) or "body", []).append(error)
    containers = {where[:end] for where in by_place for end, sign in enumerate(where) if sign == "/"}
    for where, alike in by_place.items():
        if where in containers:
            continue  # another form of the value was recognised, and something inside of it is wrong
        accepted = dict.fromkeys(_accepted(error) for error in alike if _accepted(error))
        state = "is missing" if alike[0]["type"] == "missing" else f"is {_shown(alike[0].get('input'))}"
        reason = next((str(error["ctx"]["error"]) for error in alike if "error" in error.get("ctx", {})), "")
        if reason.startswith("Expected UploadFile"):
            yield ProblemBody(where=where, what="is a text", accepted="a file: a part with a filename")
        elif alike[0]["type"] == "extra_forbidden":
            accepted_fields = ", ".join(fields) if "/" not in where else ""
            yield ProblemBody(where=where, what=_plain_message(alike[0]), accepted=accepted_fields)
        elif reason or not accepted:
            yield ProblemBody(where=where, what=reason or _plain_message(alike[0]))
        else:
            yield ProblemBody(where=where, what=state, accepted=" or ".join(accepted))


def _path(error: Any, body: object) -> Iterator[str]:
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
            continue  # pydantic's name for a form of the value
        yield str(part)


def _accepted(error: Any) -> str:
    counted = _COUNTED.get(error["type"])
    if counted is not None:
        context = error["ctx"]
        kind = {"Dictionary": "object"}.get(str(context.get("field_type")), "list")
        return counted.format(**{**context, "field_type": kind})
    text = str(error["msg"])  # such as `Input should be a valid string`
    if not text.startswith("Input should be "):
        return ""
    expected = text.removeprefix("Input should be ").removeprefix("a valid ").partition(", unable to")[0]
    return "object" if expected.startswith("dictionary") else expected


def _plain_message(error: Any) -> str:
    messages = {"missing": "is missing", "extra_forbidden": "is not known"}
    return messages.get(error["type"], str(error["msg"]).removeprefix("Value error, "))


def _shown(value: object) -> str:
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
    phrases = (status.phrase for status in HTTPStatus if status == error.status_code)
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
