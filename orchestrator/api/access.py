"""Let a request pass to its endpoint if its caller has the permission that the route declares, and owns what it names.

`authorise` is a dependency of the whole application, so it comes before every endpoint. `check_declared` makes sure
that `service.permissions` declares each route and tool.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, cast

from fastapi import FastAPI, Request
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.types import Scope

from orchestrator.api.mcp import PATH
from orchestrator.errors import OrchestratorError
from orchestrator.run.journal import UnknownChat, UnknownRun
from orchestrator.service.callers import NOBODY, Access
from orchestrator.service.permissions import FORCED_MODEL, ROUTES, TOOLS, Permission, by_name, undeclared
from orchestrator.service.service import Service
from orchestrator.service.stored_responses import StoredResponses, UnknownResponse
from orchestrator.service.uploaded_files import UnknownFile

NEEDS: Final = by_name(ROUTES)
MCP: Final = f"* {PATH}"
"""The route whose endpoint asks for its permission by itself."""


class Undeclared(OrchestratorError):
    """A route or a tool has no permission in the tables, or a permission is of none that exists."""


def access_in(scope: Scope) -> Access:
    """Return who has sent a request, as `Admission` has found out."""
    return cast(Access, scope.get("state", {}).get("access", NOBODY))


async def authorise(request: Request) -> None:
    """Raise Forbidden for a request that its caller may not send.

    What belongs to others is as unknown to a caller who may not see it as what does not exist.
    """
    access, route = access_in(request.scope), request.scope["route"]
    assert isinstance(route, APIRoute), "it is a dependency of such routes"
    access.require(NEEDS[f"{request.method} {route.path}"])
    if FORCED_MODEL in request.headers:
        access.require(Permission.TEACH, f"what {FORCED_MODEL} asks for")
    for kind, name in request.path_params.items():
        if kind in OWNERS:
            owner = await OWNERS[kind](request, access, name)
            if request.method != "GET":
                access.require_change(owner)


async def owner_of_run(service: Service, access: Access, run: str) -> str:
    """Return the owner of a run. Raises UnknownRun, also for one that the caller may not see."""
    owner = (await service.row(run)).owner
    if not access.sees(owner):
        raise UnknownRun(service.orchestrator.journal.home.database, run)
    return owner


async def _run_owner(request: Request, access: Access, run: str) -> str:
    return await owner_of_run(request.app.state.service, access, run)


async def _chat_owner(request: Request, access: Access, chat: str) -> str:
    journal = cast(Service, request.app.state.service).orchestrator.journal
    owner = (await journal.find_chat(chat)).routed.owner
    if not access.sees(owner):
        raise UnknownChat(journal.home.database, chat)
    return owner


async def _response_owner(request: Request, access: Access, response: str) -> str:
    responses = cast(StoredResponses, request.app.state.responses)
    owner = (await asyncio.to_thread(responses.load, response)).owner
    if not access.sees(owner):
        raise UnknownResponse(response)
    return owner


async def _file_owner(request: Request, access: Access, file: str) -> str:
    uploaded = cast(Service, request.app.state.service).uploaded_files
    owner = (await asyncio.to_thread(uploaded.find, file)).owner
    if not access.sees(owner):
        raise UnknownFile(file)
    return owner


OWNERS: Final[Mapping[str, Callable[[Request, Access, str], Awaitable[str]]]] = {
    "run": _run_owner,
    "chat": _chat_owner,
    "response": _response_owner,
    "file": _file_owner,
}
"""Returns the owner of what a parameter of a path names. Each raises the error for what is unknown, also for what the
caller may not see."""


def check_declared(app: FastAPI, tools: Iterable[str]) -> None:
    """Raise Undeclared unless the tables declare exactly the routes of the application, and these tools.

    A route that is none of FastAPI has no dependencies, so only that of MCP, which asks by itself, may be one.
    """
    routes = {
        f"{method} {context.path}": isinstance(context.original_route, APIRoute)
        for context in iter_route_contexts(app.routes)
        for method in context.methods or ("*",)
    }
    unasked = [f"{name} does not ask for its permission" for name, asks in routes.items() if not asks and name != MCP]
    if problems := [*unasked, *undeclared(routes, ROUTES), *undeclared(tools, TOOLS)]:
        accepted = "exactly one entry for each route and tool in orchestrator/service/permissions.py"
        raise Undeclared(f"{'; '.join(problems)}; accepted: {accepted}")
