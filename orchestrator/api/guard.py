"""Check every request before the application sees it: host, origin, token, size, time, and how many there are.

ASGI middleware, not dependencies of endpoints, so that it covers unknown addresses too. For the choice of Starlette's
middlewares see `docs/adr/0015-libraries-of-the-http-api.md`.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi.responses import Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.api.auth import given_token
from orchestrator.api.bodies import JsonBodies
from orchestrator.api.errors import DOUBT_HEADER, RUN_HEADER, error_response
from orchestrator.api.page.login import cookie_name, from_own_page, own_origin
from orchestrator.api.page.sessions import Holder, Session, Sessions
from orchestrator.api.warnings import WARNINGS_HEADER
from orchestrator.service.callers import NOBODY, Access, Callers
from orchestrator.service.configuration import ServerSettings
from orchestrator.service.permissions import OPEN, ROUTES
from orchestrator.service.service import Service

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
METHODS: Final = ("GET", "POST", "DELETE")
# Need no token: health, and the files and the login of the web page.
OPEN_PATHS: Final = frozenset(route.partition(" ")[2] for route in ROUTES[OPEN])
OPEN_FOLDERS: Final = tuple(path.partition("{")[0] for path in OPEN_PATHS if "{" in path)
UNKNOWN_USER: Final = -1  # for a process whose user id the kernel does not tell; it may do nothing


class Guard:
    """Passes a request on to `Cors` if its host is this listener's, and its origin, if it has one, is accepted.

    Over TCP, a request needs one of `tokens`, which are by name, or one of `sessions`; None is for the Unix socket,
    which only the daemon's user can open. `address` is the host of the listener.
    """

    def __init__(
        self,
        app: ASGIApp,
        service: Service,
        tokens: Mapping[str, str] | None,
        sessions: Sessions,
        address: str = "localhost",
    ) -> None:
        self._app = Cors(Admission(app, service, tokens, sessions), service)
        self._service = service
        self._address = address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _close(scope, receive, send)
            return
        # Settings are read for each request, because they can change while the daemon runs.
        app = self._refusal(scope, Headers(scope=scope), self._service.configuration.server) or self._app
        await app(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers, settings: ServerSettings) -> Response | None:
        path = scope["path"]
        hosts = LOOPBACK | {name.lower() for name in (self._address, *settings.hosts)}
        host, origin = headers.get("host", ""), headers.get("origin")
        if _host_name(host) not in hosts:
            accepted = ", ".join(sorted(hosts))
            message = f"the host {host!r} is not served here; accepted: {accepted}"
            return error_response(421, message, "wrong_host", path=path)
        if origin is not None and origin != own_origin(scope, headers) and not accepts_origin(origin, settings):
            message = f"pages of {origin!r} may send no requests; see origins of [server]"
            return error_response(403, message, "wrong_origin", path=path)
        return None


class Cors(CORSMiddleware):
    """Tells browsers that pages of the configured origins may send requests and read the answers.

    Preflight requests of browsers have no token, so this comes before `Admission`.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        super().__init__(
            app,
            allow_methods=METHODS,
            allow_headers=["*"],
            expose_headers=[RUN_HEADER, DOUBT_HEADER, WARNINGS_HEADER],
            allow_private_network=True,
        )
        self._service = service

    def is_allowed_origin(self, origin: str) -> bool:
        return accepts_origin(origin, self._service.configuration.server)


class Admission:
    """Passes a request on to `JsonBodies` if its caller is known, it is not too large, and few are in progress.

    A caller is known by a token, or by the session of a page of this listener; over the Unix socket by its user. In
    `scope["state"]` are then `access`, which is the caller and its permissions, and `holder`, unless that is a session,
    or `session`.
    """

    def __init__(self, app: ASGIApp, service: Service, tokens: Mapping[str, str] | None, sessions: Sessions) -> None:
        self._app = JsonBodies(app)
        self._service = service
        self._tokens = tokens
        self._sessions = sessions
        self._in_progress = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        settings, headers = self._service.configuration.server, Headers(scope=scope)
        state = scope.setdefault("state", {})
        holder, session = self._holder(state, headers), None
        if holder is None and (session := self._session(scope, headers)) is not None:
            state["session"] = session
        elif holder is not None:
            state["holder"] = holder
        caller = session.holder if session is not None else holder
        if (refusal := self._refusal(scope["path"], headers, settings, caller)) is not None:
            await refusal(scope, receive, send)
            return
        state["access"] = self._access(scope, caller)
        self._in_progress += 1
        try:
            await self._app(scope, BoundedReceive(receive, settings.max_body, settings.body_seconds), send)
        finally:
            self._in_progress -= 1

    def _holder(self, state: Mapping[str, Any], headers: Headers) -> Holder | None:
        if self._tokens is None:
            return Holder(uid=state.get("uid", UNKNOWN_USER))
        name = given_token(headers.get("authorization"), self._tokens, headers.get("x-api-key"))
        return None if name is None else Holder.of_token(name, self._tokens[name])

    def _session(self, scope: Scope, headers: Headers) -> Session | None:
        cookies = cookie_parser(headers.get("cookie", ""))
        session = self._sessions.find(cookies.get(cookie_name(scope), ""))
        if session is None or not from_own_page(scope, headers):
            return None
        name = session.holder.token
        if name is not None and session.holder != Holder.of_token(name, (self._tokens or {}).get(name, "")):
            return None  # its token was replaced or removed
        return session

    def _access(self, scope: Scope, caller: Holder | None) -> Access:
        if caller is None:
            return NOBODY
        callers = Callers(self._service.home, self._service.configuration.server.callers)
        if caller.token is None:
            user = callers.user(caller.uid)
            # A browser over TCP may name the folders that a token may.
            return user if self._tokens is None else replace(user, local=False)
        client = scope.get("client")
        return callers.token(caller.token, client[0] if client else "an unknown address")

    def _refusal(self, path: str, headers: Headers, settings: ServerSettings, caller: Holder | None) -> Response | None:
        if caller is None and not (path in OPEN_PATHS or path.startswith(OPEN_FOLDERS)):
            message = (
                "the token is missing or wrong; accepted: Authorization: Bearer TOKEN, x-api-key: TOKEN,"
                " or a session of the web page (`orchestrator ui`)"
            )
            return error_response(401, message, "token", {"WWW-Authenticate": "Bearer"}, path=path)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > settings.max_body:
            message = f"the body has {length} bytes; accepted: at most {settings.max_body}"
            return error_response(413, message, "too_large", path=path)
        if self._in_progress >= settings.max_requests:
            message = f"{self._in_progress} requests are in progress"
            return error_response(429, message, "busy", {"Retry-After": "1"}, path=path)
        return None


class BoundedReceive:
    """Receives a request whose body may have `max_bytes`, and must be complete within `seconds`."""

    def __init__(self, receive: Receive, max_bytes: int, seconds: float) -> None:
        self._receive = receive
        self._bytes_left = max_bytes
        self._seconds = seconds
        self._deadline: float | None = None
        self._complete = False

    async def __call__(self) -> Message:
        """Return the next message. Raises HTTPException if the body is too large or too late."""
        if self._complete:
            return await self._receive()
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._seconds
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError as error:
            detail = f"the body was not complete after {self._seconds:g} s"
            raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, detail, {"Connection": "close"}) from error
        self._bytes_left -= len(message.get("body", b""))
        if self._bytes_left < 0:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the body is too large", {"Connection": "close"})
        self._complete = not message.get("more_body", False)
        return message


def accepts_origin(origin: str, settings: ServerSettings) -> bool:
    return origin in settings.origins or "*" in settings.origins


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:  # a malformed header, which matches no host
        return ""


async def _close(scope: Scope, receive: Receive, send: Send) -> None:
    # Only HTTP is served; lifespan events need no answer.
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1000})
