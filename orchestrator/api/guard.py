"""Let a request pass only if it is addressed to us, comes from no foreign page, carries the token, and is not too much.

This is plain ASGI, so that it stands in front of everything, unknown addresses included.
"""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.api.auth import is_authorized
from orchestrator.api.errors import refusal
from orchestrator.service.configuration import ServerSettings
from orchestrator.service.service import Service

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN: Final = frozenset({"/health/live", "/health/ready"})
"""Anyone who reaches the port may ask whether the daemon is well."""
HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Guard:
    """Stands before the application on one listener. `token` None: the listener is the socket, which is ours alone."""

    def __init__(self, app: ASGIApp, service: Service, token: str | None, address: str = "localhost") -> None:
        self._app = app
        self._service = service
        self._token = token
        self._address = address
        self._requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            return await _close(scope, receive, send)
        settings = self._service.configuration.server
        origin = dict(scope["headers"]).get(b"origin", b"").decode("latin-1")
        send = _for_page(send, origin) if origin in settings.origins else send
        if (refused := self._refusal(scope, settings)) is not None:
            return await refused(scope, receive, send)
        scope.setdefault("state", {})["local"] = self._token is None
        body = Body(receive, settings.max_body, settings.body_seconds)
        with self._counted():
            await self._app(scope, body, send)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1

    def _refusal(self, scope: Scope, settings: ServerSettings) -> Response | None:
        """Return the answer to a request that is let no further, or None."""
        headers = dict(scope["headers"])
        hosts = LOOPBACK | {name.lower() for name in (self._address, *settings.hosts)}
        host = headers.get(b"host", b"").decode("latin-1")
        if _name(host) not in hosts:
            return refusal(421, f"the host {host!r} is not served here; accepted: {_some(hosts)}", "wrong_host")
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1") not in settings.origins:
            return refusal(403, f"pages of {origin!r} may send no requests; see origins of [server]", "wrong_origin")
        if origin is not None and scope["method"] == "OPTIONS":  # a browser asks first, without the token
            asked = headers.get(b"access-control-request-headers", b"").decode("latin-1")
            return Response(status_code=HTTPStatus.NO_CONTENT, headers=_preflight(asked))
        if self._token is not None and scope["path"] not in OPEN:
            if not is_authorized(headers.get(b"authorization"), self._token):
                wanted = {"WWW-Authenticate": "Bearer"}
                return refusal(
                    401, "the token is missing or wrong; accepted: Authorization: Bearer TOKEN", "token", wanted
                )
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > settings.max_body:
            return refusal(
                413, f"the body has {length.decode('latin-1')} bytes, {settings.max_body} may be", "too_large"
            )
        if self._requests >= settings.max_requests:
            return refusal(429, f"{self._requests} requests are in progress", "busy", {"Retry-After": "1"})
        return None


def _preflight(asked: str) -> dict[str, str]:
    """Return what a browser wants to know of a page's request before it sends it.

    Whatever headers it has `asked` for may come with it: clients have many of their own, and none of them means harm.
    """
    names = (name.strip() for name in asked.split(","))
    return {
        "Access-Control-Allow-Methods": "GET, POST, DELETE",
        "Access-Control-Allow-Headers": ", ".join(name for name in names if HEADER_NAME.fullmatch(name)),
        "Access-Control-Max-Age": "600",
    }


def _for_page(send: Send, origin: str) -> Send:
    """Return what tells the browser, with every answer, that pages of this origin may read it."""
    ours = [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"Origin")]

    async def told(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *ours]}
        await send(message)

    return told


class Body:
    """Receives a request, and bounds its body: bytes in all, seconds until all of it is there."""

    def __init__(self, receive: Receive, most: int, seconds: float) -> None:
        self._receive = receive
        self._left = most
        self._seconds = seconds
        self._whole = False
        self._due: float | None = None

    async def __call__(self) -> Message:
        """Return the next message. Raises HTTPException for a body that is too large or too slow."""
        if self._whole:
            return await self._receive()
        if self._due is None:
            self._due = asyncio.get_running_loop().time() + self._seconds
        try:
            async with asyncio.timeout_at(self._due):
                message = await self._receive()
        except TimeoutError as error:
            what = f"the body was not there after {self._seconds:g} s"
            raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, what, {"Connection": "close"}) from error
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the body is too large", {"Connection": "close"})
        self._whole = not message.get("more_body", False)
        return message


def _name(host: str) -> str:
    """Return the name in a Host header, without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _some(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


async def _close(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse what is no request: there are no WebSockets here."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1000})
