"""Build the FastAPI application from its routers and those of what is attached to the service."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter, Depends, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.routing import Route

from orchestrator.api import admin, chats, events, machine, metrics, models, runs
from orchestrator.api.access import authorise, check_declared
from orchestrator.api.anthropic import messages
from orchestrator.api.errors import ErrorHandler, add_error_handlers
from orchestrator.api.limiter import GenerationLimiter
from orchestrator.api.llama_server import completion as native_completion
from orchestrator.api.llama_server import state, tokens
from orchestrator.api.machine_history import MachineHistory
from orchestrator.api.mcp import PATH
from orchestrator.api.mcp.endpoint import McpEndpoint
from orchestrator.api.mcp.tools import CALLABLE
from orchestrator.api.openai import chat, embeddings, files, rerank, responses, text_completions
from orchestrator.api.openai import models as openai_models
from orchestrator.api.page import files as page_files
from orchestrator.api.page import login
from orchestrator.api.page.sessions import Sessions
from orchestrator.registry.models import Registry
from orchestrator.run.journal.home import Home
from orchestrator.service.attachments import Cluster, Learner, Procedures
from orchestrator.service.configuration import Configuration
from orchestrator.service.extent import Extent
from orchestrator.service.service import Service
from orchestrator.service.stored_responses import StoredResponses

TITLE: Final = "orchestrator"
DESCRIPTION: Final = """Runs on local models: submit, watch, cancel and export them. Part of it is OpenAI-compatible.

Over the Unix socket no token is needed; over TCP every request needs one. The body of every error is an `ErrorBody`."""

OPENAI_MODULES: Final = (
    chat,
    text_completions,
    responses,
    files,
    embeddings,
    rerank,
    openai_models,
)  # also served without `/v1`
OWN_MODULES: Final = (runs, events, chats, models, admin, metrics)
DIALECTS: Final = (tokens, native_completion, state, messages)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """What an attachment of the service adds to the API."""

    router: APIRouter
    # By the error that its endpoints raise, what answers it; errors of the core are answered without.
    handlers: Mapping[type[Exception], ErrorHandler] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """What the composition root attaches to services, and to the API of each."""

    learner: Callable[[Service], Learner]
    procedures: Callable[[Service], Procedures]
    cluster: Callable[[Service], Cluster]
    load_endpoints: Callable[[], tuple[Endpoints, ...]]

    @property
    def endpoints(self) -> tuple[Endpoints, ...]:
        """Those of all attachments, which are imported for this."""
        return self.load_endpoints()

    def service(
        self, home: Path, registry: Registry, configuration: Configuration, extent: Extent = Extent.DAEMON
    ) -> Service:
        """Return a service to enter."""
        return Service(home, registry, configuration, self.learner, self.procedures, self.cluster, extent)


def make_app(service: Service, tasks: asyncio.TaskGroup, attached: Iterable[Endpoints] | None) -> FastAPI:
    """Return the application for a service, with the endpoints of what is attached to it. Raises Undeclared.

    Without `attached`, it has only our own API, for a command of the core, which asks for nothing else.
    Generations run in the task group `tasks`, which must stay open until the last request is answered. Call
    `app.state.limiter.cancel_all()` before it is closed, so that no generation keeps it open.
    """
    app = FastAPI(
        title=TITLE,
        description=DESCRIPTION,
        version=version("orchestrator"),
        openapi_url=None,  # it is a route like the others
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(authorise)],
    )
    app.state.service = service
    app.state.limiter = GenerationLimiter(tasks, lambda: service.configuration.server.max_generations)
    add_error_handlers(app)
    for module in OWN_MODULES:
        app.include_router(module.router)
    if attached is not None:
        _add_all_others(app, service, attached)
    app.openapi = lambda: _schema(app)  # type: ignore[method-assign]
    app.add_api_route(
        "/openapi.json",
        lambda: JSONResponse(app.openapi()),
        description="Describe all endpoints, in OpenAPI's format.",
        include_in_schema=False,
    )
    check_declared(app, CALLABLE, whole=attached is not None)
    return app


def _add_all_others(app: FastAPI, service: Service, attached: Iterable[Endpoints]) -> None:
    home = Home(service.home)
    app.state.responses = StoredResponses(home.responses, "resp")
    app.state.threads = StoredResponses(home.threads, "msg")
    app.state.sessions = Sessions()
    app.state.page_url = None  # until a listener on TCP has an address for browsers
    app.state.machine_history = MachineHistory()
    for module in (machine, login, page_files, *OPENAI_MODULES, *DIALECTS):
        app.include_router(module.router)
    for endpoints in attached:
        app.include_router(endpoints.router)
        for error, handler in endpoints.handlers.items():
            app.add_exception_handler(error, handler)
    _add_short_paths(app)
    app.router.routes.append(Route(PATH, McpEndpoint(service), include_in_schema=False))


def _add_short_paths(app: FastAPI) -> None:
    # Some clients have a base URL without `/v1`.
    for module in OPENAI_MODULES:
        for route in module.router.routes:
            if isinstance(route, APIRoute):
                path, methods = route.path.removeprefix("/v1"), sorted(route.methods or ())
                app.add_api_route(
                    path,
                    route.endpoint,
                    methods=methods,
                    response_model=route.response_model,
                    response_model_exclude_none=route.response_model_exclude_none,
                    include_in_schema=False,
                )


def _schema(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        for operations in document["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)  # `errors` answers invalid requests in its own form
        for name in ("HTTPValidationError", "ValidationError"):
            document["components"]["schemas"].pop(name, None)
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{}, {"token": []}]
        app.openapi_schema = document
    return app.openapi_schema
