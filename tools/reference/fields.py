"""Make docs/reference.md from the models of documents and settings, and from the routes of the API."""

import asyncio
import inspect
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from fastapi.routing import APIRoute, iter_route_contexts
from starlette.routing import BaseRoute, Route

from orchestrator.api.access import NEEDS
from orchestrator.api.app import make_app
from orchestrator.app import attached
from orchestrator.registry import llama_library, load, persona
from orchestrator.registry.forms import PersonasForm, RegistryForm
from orchestrator.registry.load import empty_registry
from orchestrator.run.journal import home
from orchestrator.service import configuration
from orchestrator.service.configuration import Configuration
from orchestrator.service.extent import Extent
from orchestrator.service.permissions import FORCED_MODEL, MEANINGS
from orchestrator.task.taskir.fields import ARTIFACT, MAX_NAME, NAME, PATTERN_DESCRIPTIONS, STEP_ID, TIMESTAMP
from orchestrator.task.taskir.models import TaskIR
from tools.reference.tables import sections, table

HEAD: Final = """# Reference

Made from the code by `python -m tools.reference fields > docs/reference.md`; a test compares the two. This page lists
the keys of [TaskIR](#taskir), of [the registry](#the-registry) and [its personas](#the-personas),
[the settings](#settings) and [the routes of the API](#routes). [The command line](cli.md) has a page of its own.

A key that is not listed is refused, except old names, which still work. A key without a default may be left out unless
it is required.

"""
TASKIR: Final = """## TaskIR

[TaskIR](taskir.md) explains it by examples. `orchestrator schema` prints the same as JSON Schema.

"""
REGISTRY: Final = f"""
## The registry

[Models](models.md) explains it by examples. File names are relative to this file. A name has {persona.NAME_RULE}.

"""
PERSONAS: Final = """
## The personas

The file that `personas` of the registry names.

"""
SETTINGS: Final = """
## Settings

`~/.config/orchestrator/config.toml`, with a table for each section. `orchestrator config show` prints it with all
current values. An environment variable precedes the file: `ORCHESTRATOR_RUNS_MAX_RUNNING` is `max_running` of `[runs]`.
In a variable, commas separate the items of a list and the pairs of a mapping (`NAME=TARGET`).

"""
VARIABLES: Final = "\n### Environment variables\n\n"
ROUTES: Final = f"""
## Routes

[The API](api.md) explains how they are used. `GET /openapi.json` describes requests and answers. A caller needs the
permission of a route, which `callers` of [`server`](#server) grants. A header `{FORCED_MODEL}` needs `teach` as well.

"""
SHORT: Final = "These paths are also there without `/v1`.\n\n"
# Texts of documents, by their patterns.
TASKIR_KINDS: Final = {STEP_ID: "step id", NAME: "name", ARTIFACT: "file name", TIMESTAMP: "date or time"}
REGISTRY_KINDS: Final = {persona.NAME: "name"}


class Endpoint(NamedTuple):
    """A route, as a row of a table."""

    method: str
    path: str
    group: str
    summary: str


# What environment variables name, in addition to those of the settings.
FILES: Final = {
    home.ENVIRONMENT: "the state folder; without it, `orchestrator` in `$XDG_STATE_HOME`, else in `~/.local/state`",
    configuration.ENVIRONMENT: "the file of the settings; without it, `orchestrator/config.toml` in `$XDG_CONFIG_HOME`,"
    " else in `~/.config`",
    load.ENVIRONMENT: "the registry; without it, `orchestrator/model_registry.yaml` there, else the one that ships",
    llama_library.ENVIRONMENT: "the build of llama.cpp, `libllama.so` or its folder; without it, the installed one",
}


def page() -> str:
    """Return the Markdown page."""
    return "".join(_parts())


def _parts() -> Iterator[str]:
    yield from (HEAD, TASKIR, *sections(TaskIR, TASKIR_KINDS))
    yield "\n### Texts of TaskIR\n\n"
    yield table(("type", "what it is"), ((kind, PATTERN_DESCRIPTIONS[form]) for form, kind in TASKIR_KINDS.items()))
    yield f"\nA name and a file name have up to {MAX_NAME} characters.\n"
    yield from (REGISTRY, *sections(RegistryForm, REGISTRY_KINDS))
    yield from (PERSONAS, *sections(PersonasForm, REGISTRY_KINDS), SETTINGS, *sections(Configuration))
    yield from (VARIABLES, table(("variable", "what it names"), _named(FILES)))
    yield from (ROUTES, table(("permission", "meaning"), _named(MEANINGS)))
    with tempfile.TemporaryDirectory() as folder:
        endpoints = asyncio.run(_endpoints(Path(folder)))
    paths = {endpoint.path for endpoint in endpoints}
    short = {endpoint.path for endpoint in endpoints if not endpoint.group and f"/v1{endpoint.path}" in paths}
    groups: dict[str, list[Endpoint]] = {}
    for endpoint in endpoints:
        if endpoint.path not in short:
            groups.setdefault(endpoint.group or "others", []).append(endpoint)
    for group, rows in groups.items():
        yield f"\n### Routes: {group}\n\n"
        if all(endpoint.path.removeprefix("/v1") in short for endpoint in rows):
            yield SHORT
        yield table(("route", "permission", "what it does"), map(_row, rows))


def _named(texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return ((f"`{name}`", text) for name, text in texts.items())


def _row(endpoint: Endpoint) -> tuple[str, ...]:
    need = NEEDS[f"{endpoint.method} {endpoint.path}"]
    return f"`{endpoint.method} {endpoint.path.replace(':path', '')}`", f"`{need}`", endpoint.summary


async def _endpoints(folder: Path) -> list[Endpoint]:
    # Of the whole daemon, for a service that is not started.
    parts = attached()
    service = parts.service(folder, empty_registry(folder / "registry.yaml"), Configuration(), Extent.NOTHING)
    async with asyncio.TaskGroup() as tasks:
        app = make_app(service, tasks, parts.endpoints)
    return [
        Endpoint(method, context.path, *_about(context.original_route))
        for context in iter_route_contexts(app.routes)
        for method in sorted(context.methods or ("*",))
    ]


def _about(route: BaseRoute) -> tuple[str, str]:
    if isinstance(route, APIRoute):
        return str(next(iter(route.tags), "")), _first_paragraph(route.description)
    assert isinstance(route, Route), "there are no mounts"
    return "", _first_paragraph(inspect.getdoc(route.endpoint) or "")


def _first_paragraph(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())
