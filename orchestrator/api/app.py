"""Put the application together."""

import asyncio
from importlib.metadata import version
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from orchestrator.api import events, models, runs, upkeep
from orchestrator.api.errors import tell_errors
from orchestrator.api.openai import catalogue, chat, embeddings, responses
from orchestrator.api.openai.generating import Workplace
from orchestrator.service.service import Service

TITLE: Final = "orchestrator"
ABOUT: Final = """Runs on local models: submitted, watched, cancelled, exported; and an OpenAI-compatible part.

Over the Unix socket no token is needed; over TCP every request carries one. Errors have one shape, `ErrorBody`."""


def make_app(service: Service, tasks: asyncio.TaskGroup) -> FastAPI:
    """Return the application on a service. `tasks` has to be left after the last request; stop its workplace first."""
    app = FastAPI(title=TITLE, description=ABOUT, version=version("orchestrator"), docs_url=None, redoc_url=None)
    app.state.service = service
    app.state.workplace = Workplace(tasks, lambda: service.configuration.server.max_generations)
    tell_errors(app)
    for module in (runs, events, models, upkeep, chat, responses, embeddings, catalogue):
        app.include_router(module.router)
    app.openapi = lambda: _schema(app)  # type: ignore[method-assign]
    return app


def _schema(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document, without FastAPI's shape of requests that do not validate: ours is one."""
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        for operations in made["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
        for name in ("HTTPValidationError", "ValidationError"):
            made["components"]["schemas"].pop(name, None)
        made["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        made["security"] = [{}, {"token": []}]
        app.openapi_schema = made
    return app.openapi_schema
