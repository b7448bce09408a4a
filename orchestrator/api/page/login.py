"""Endpoints by which a browser logs in: a caller makes a one-time link, whose code a page exchanges for a session."""

from typing import Annotated, Final, cast

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field
from starlette.datastructures import Headers
from starlette.types import Scope

from orchestrator.api.dependencies import AccessDep, StrictBody
from orchestrator.api.errors import DOCUMENTED
from orchestrator.api.page.sessions import LINK_SECONDS, SESSION_SECONDS, Holder, Session, Sessions
from orchestrator.errors import InputError, Problem
from orchestrator.service.errors import Conflict

CODE_LENGTH: Final = 200  # at most

router = APIRouter(prefix="/v1", tags=["page"], responses=dict(DOCUMENTED))


class LinkBody(BaseModel):
    """A link to the web page that logs one browser in, once."""

    url: str
    seconds: float  # for which it works


class CodeBody(StrictBody):
    """The code of a link."""

    code: str = Field(min_length=1, max_length=CODE_LENGTH, description="the part of the link after `#login=`")


class SessionBody(BaseModel):
    """A caller, and what it may do."""

    key: str  # which owns what the caller makes, such as `user:ann`
    name: str
    permissions: list[str]
    roles: list[str]  # by which procedures know the caller
    seconds_left: float | None  # of the session; None for a caller with a token, and on the Unix socket


def _sessions(request: Request) -> Sessions:
    return cast(Sessions, request.app.state.sessions)


SessionsDep = Annotated[Sessions, Depends(_sessions)]


@router.post("/session/links", status_code=201)
async def make_link(request: Request, sessions: SessionsDep) -> LinkBody:
    """Make a link that logs a browser in with the caller's rights. A session cannot make links."""
    holder = request.scope["state"].get("holder")
    if not isinstance(holder, Holder):
        raise Conflict("a session of the web page makes no links; accepted: the Unix socket, or a token")
    address = cast(str | None, request.app.state.page_url)
    if address is None:
        raise Conflict("the daemon has no address for a browser; accepted: `orchestrator serve --tcp 127.0.0.1:8484`")
    return LinkBody(url=f"{address}/#login={sessions.make_link(holder)}", seconds=LINK_SECONDS)


@router.post("/login", status_code=204)
async def login(body: CodeBody, request: Request, response: Response, sessions: SessionsDep) -> None:
    """Exchange the code of a link for a session, whose key is in a cookie. The code works once."""
    key = sessions.follow(body.code)
    if key is None:
        accepted = "a new link, by `orchestrator ui`"
        raise InputError(Problem("code", "the link was used before, or is too old", accepted))
    _set_cookie(response, request.scope, key, SESSION_SECONDS)


@router.get("/session")
async def show(access: AccessDep, request: Request, sessions: SessionsDep) -> SessionBody:
    """Return who the caller is, and what it may do."""
    session = cast(Session | None, request.scope["state"].get("session"))
    return SessionBody(
        key=access.key,
        name=access.name,
        permissions=sorted(access.permissions),
        roles=sorted(access.caller.roles),
        seconds_left=None if session is None else sessions.seconds_left(session),
    )


@router.delete("/session", status_code=204)
async def logout(request: Request, response: Response, sessions: SessionsDep) -> None:
    """End the session of the request."""
    sessions.end(request.cookies.get(cookie_name(request.scope), ""))
    _set_cookie(response, request.scope, "", 0)


def cookie_name(scope: Scope) -> str:
    """Return the name of the session's cookie. It has the port, since all ports of a host share their cookies."""
    server = scope.get("server")
    return f"orchestrator_session_{server[1] if server else ''}"


def from_own_page(scope: Scope, headers: Headers) -> bool:
    """Return whether a request is from a page of this listener, so that its cookie counts, as the browser says.

    With `GET`, which changes nothing, browsers send no origin to the own listener, and over HTTP beyond loopback
    nothing else either; but no page of another site can have a `SameSite=Strict` cookie sent.
    """
    origin = headers.get("origin")
    if origin is not None:
        return origin == own_origin(scope, headers)
    return scope["method"] in ("GET", "HEAD") and headers.get("sec-fetch-site", "none") in ("same-origin", "none")


def own_origin(scope: Scope, headers: Headers) -> str:
    return f"{scope['scheme']}://{headers.get('host', '')}"


def _set_cookie(response: Response, scope: Scope, key: str, seconds: float) -> None:
    response.set_cookie(
        cookie_name(scope),
        key,
        max_age=int(seconds),
        path="/",
        secure=scope["scheme"] == "https",
        httponly=True,
        samesite="strict",
    )
