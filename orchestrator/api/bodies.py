"""Read the whole body of a request before the application parses it, and refuse what is no JSON of usable size.

ASGI middleware, so that it covers all dialects and the MCP endpoint. Forms with files pass unread.
"""

import asyncio
from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.api.errors import error_response, http_error_response
from orchestrator.task.taskir.json_size import has_half_surrogate, json_excess

SMALL: Final = 1 << 16  # bytes; up to this size a check takes less time than a thread
HALF_SURROGATE: Final = (
    r"body: holds half of a surrogate pair, such as \ud83d alone, which is not Unicode; accepted: whole characters"
)


class JsonBodies:
    """Passes a request on if its body is uncompressed, is UTF-8 and keeps to the limits of `json_size`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if (refusal := _compressed(scope["path"], headers)) is not None:
            await refusal(scope, receive, send)
            return
        if headers.get("content-type", "").lower().startswith("multipart/"):
            await self._app(scope, receive, send)
            return
        try:
            body = await _whole_body(receive)
        except HTTPException as error:
            await http_error_response(scope["method"], scope["path"], error)(scope, receive, send)
            return
        if body is None:
            return  # the client has gone
        refusal = (
            _refusal(scope["path"], body)
            if len(body) <= SMALL
            else await asyncio.to_thread(_refusal, scope["path"], body)
        )
        if refusal is not None:
            await refusal(scope, receive, send)
        else:
            await self._app(scope, _Replay(body, receive), send)


class _Replay:
    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:  # the body was delivered; only a disconnect can follow
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


def _compressed(path: str, headers: Headers) -> Response | None:
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return None
    message = f"header Content-Encoding: is {encoding[:40]}; accepted: a body without compression, and no such header"
    identity = {"Accept-Encoding": "identity"}
    return error_response(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message, "content_encoding", identity, path=path)


def _refusal(path: str, body: bytes) -> Response | None:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        problem = f"the body is not UTF-8: byte 0x{body[error.start]:02x} at offset {error.start}"
        return error_response(HTTPStatus.BAD_REQUEST, f"{problem}; accepted: JSON in UTF-8", "not_utf8", path=path)
    if (excess := json_excess(body)) is not None:
        status = HTTPStatus.BAD_REQUEST if excess.is_depth else HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        return error_response(status, f"body: {excess}", "too_deep" if excess.is_depth else "too_large", path=path)
    if has_half_surrogate(body):
        return error_response(HTTPStatus.BAD_REQUEST, HALF_SURROGATE, "not_unicode", path=path)
    return None


async def _whole_body(receive: Receive) -> bytes | None:
    pieces: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)
