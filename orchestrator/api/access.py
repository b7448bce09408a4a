"""Authorise requests: a caller needs the permission that the route declares, and must own what the path names.

`authorise` is a dependency of the whole application, so it runs before every endpoint.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, cast

from fastapi import FastAPI, Request
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.types import Scope

from orchestrator.api.mcp import PATH
from orchestrator.errors import OrchestratorError
from orchestrator.run.journal.errors import UnknownChat, UnknownRun
from orchestrator.service.callers import NOBODY, Access
from orchestrator.service.permissions import FORCED_MODEL, ROUTES, TOOLS, Permission, by_name, undeclared
from orchestrator.service.service import Service
from orchestrator.service.stored_responses import StoredResponses, UnknownResponse
from orchestrator.service.uploaded_files import UnknownFile

NEEDS: Final = by_name(ROUTES)
# They open the state folder themselves, if they need it when they have checked the job.
CHECKING: Final = frozenset({"POST /v1/runs", "POST /v1/forecasts"})
MCP: Final = f"* {PATH}"  # its endpoint checks the permission itself


class Undeclared(OrchestratorError):
    """A route or tool is missing from the permission tables, or a table lists one that does not exist."""


def access_in(scope: Scope) -> Access:
    """Return the caller of a request, as `Admission` stored it."""
    return cast(Access, scope.get("state", {}).get("access", NOBODY))


async def authorise(request: Request) -> None:
    """Raise Forbidden if the caller may not send a request.

    What the caller may not see raises the same error as what does not exist.
    """
    access, route = access_in(request.scope), request.scope["route"]
    assert isinstance(route, APIRoute), "it is a dependency of such routes"
    access.require(NEEDS[f"{request.method} {route.path}"])
    if f"{request.method} {route.path}" not in CHECKING:
        await cast(Service, request.app.state.service).open()
    if FORCED_MODEL in request.headers:
        access.require(Permission.TEACH, f"what {FORCED_MODEL} asks for")
    for kind, name in request.path_params.items():
        if kind in OWNERS:
            owner = await OWNERS[kind](request, access, name)
            if request.method != "GET":  # to read, it is enough to see it
                access.require_change(owner)


async def owner_of_run(service: Service, access: Access, run: str) -> str:
    """Return the owner of a run. Raises UnknownRun if there is none, or the caller may not see it."""
    owner = (await service.row(run)).owner
    if not access.sees(owner):
        raise UnknownRun(service.folder.journal.home.database, run)
    return owner


async def _run_owner(request: Request, access: Access, run: str) -> str:
    return await owner_of_run(request.app.state.service, access, run)


async def _chat_owner(request: Request, access: Access, chat: str) -> str:
    journal = cast(Service, request.app.state.service).folder.journal
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


# For each path parameter, a function that returns the owner of what it names.
OWNERS: Final[Mapping[str, Callable[[Request, Access, str], Awaitable[str]]]] = {
    "run": _run_owner,
    "chat": _chat_owner,
    "response": _response_owner,
    "file": _file_owner,
}


def check_declared(app: FastAPI, tools: Iterable[str], *, whole: bool) -> None:
    """Raise Undeclared unless `service.permissions` declares exactly the routes of the application, and these tools.

    An application that is not `whole` may lack routes that are declared.
    """
    routes = {
        f"{method} {context.path}": isinstance(context.original_route, APIRoute)
        for context in iter_route_contexts(app.routes)
        for method in context.methods or ("*",)
    }
    # Only FastAPI's own routes run dependencies such as `authorise`.
    unchecked = [
        f"{name} does not ask for its permission" for name, checks in routes.items() if not checks and name != MCP
    ]
    declared = {need: tuple(name for name in names if whole or name in routes) for need, names in ROUTES.items()}
    if problems := [*unchecked, *undeclared(routes, declared), *undeclared(tools, TOOLS)]:
        accepted = "exactly one entry for each route and tool in orchestrator/service/permissions.py"
        raise Undeclared(f"{'; '.join(problems)}; accepted: {accepted}")
