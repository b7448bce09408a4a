"""Say what the name of a model stands for, and list all names under /v1/models.

`auto` lets the router choose, and `orchestrate` is a whole run. Any other name is that of a role, else that of a
persona (of the role that plans fall back on), else that of a model of the registry, or an alias of it; the model is
then asked directly.
"""

from typing import Final, Literal

from fastapi import APIRouter
from pydantic import BaseModel

from orchestrator.api.dependencies import ServiceDep
from orchestrator.api.errors import DOCUMENTED, UnknownName
from orchestrator.api.openai.embeddings import embedder_names
from orchestrator.runs import Orchestrator
from orchestrator.runs.job import check_model
from orchestrator.service.chats import RoutedChat, route_chat
from orchestrator.steps.role import ResolvedRole, resolve_model, resolve_role
from registry.models import Registry

AUTO: Final = "auto"
ORCHESTRATE: Final = "orchestrate"

router = APIRouter(prefix="/v1", tags=["openai"], responses=dict(DOCUMENTED))


class ModelBody(BaseModel):
    """One name that can be used as `model`."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "orchestrator"
    context_length: int | None = None
    """How many tokens prompt and answer may have together; None where it is not one model's, or not known."""
    max_model_len: int | None = None
    """The same, as vLLM calls it."""
    aliases: list[str] = []
    """Other names of the same model."""


class ModelList(BaseModel):
    """All names that can be used as `model`."""

    object: Literal["list"] = "list"
    data: list[ModelBody]


@router.get("/models")
async def models(service: ServiceDep) -> ModelList:
    """List every name that can be used as `model`: `auto`, `orchestrate`, roles, personas, models, embedders."""
    registry = service.orchestrator.registry
    return ModelList(data=[_body(name, registry) for name in _all_names(registry)])


@router.get("/models/{name:path}")
async def model(name: str, service: ServiceDep) -> ModelBody:
    """Return the entry of one name, where it can be used as `model`."""
    registry = service.orchestrator.registry
    names = _all_names(registry)
    if name not in names:
        raise UnknownName(f"there is no model {name!r}; accepted: {', '.join(names)}")
    return _body(name, registry)


def _body(name: str, registry: Registry) -> ModelBody:
    role = registry.roles.get(name)
    model = role.model if role is not None else registry.model_named(name)
    if model is None:
        return ModelBody(id=name)
    entry = registry.models[model]
    context = entry.countable_context
    return ModelBody(id=name, context_length=context, max_model_len=context, aliases=[*entry.aliases])


def chat_names(registry: Registry) -> list[str]:
    """Return every name that can be used as `model` of a chat or a response, the general ones first."""
    general = [AUTO, ORCHESTRATE] if registry.step_roles else []
    roles = [name for name in registry.roles if registry.why_not(name) is None]
    return list(dict.fromkeys([*general, *roles, *registry.personas, *sorted(registry.usable_names)]))


async def resolve_name(
    name: str, objective: str, orchestrator: Orchestrator, response_id: str, forced: str | None = None
) -> tuple[ResolvedRole, RoutedChat | None]:
    """Return the role or the model that a name other than `orchestrate` stands for.

    A `forced` model answers whoever is asked. Raises UnknownName, and InputError for a model that cannot be forced.

    `objective` is what the user wants, for the router to go by. Where the router has chosen, its choice is returned as
    well, under the id of the response.
    """
    registry = orchestrator.registry
    if forced is not None:
        check_model(registry, forced)
        forced = registry.model_named(forced)
    if name == AUTO and registry.step_roles:
        return await _routed(None, objective, orchestrator, response_id, forced)
    if name in registry.roles and registry.why_not(name) is None:
        return resolve_role(registry, name, registry.roles[name].persona, forced), None
    if name in registry.personas and registry.step_roles:
        return await _routed(name, objective, orchestrator, response_id, forced)
    if name in registry.usable_names and (model := registry.model_named(name)) is not None:
        return resolve_model(registry, forced or model), None
    raise UnknownName(f"there is no model {name!r}; accepted: {', '.join(chat_names(registry))}")


async def _routed(
    persona: str | None, objective: str, orchestrator: Orchestrator, response_id: str, forced: str | None
) -> tuple[ResolvedRole, RoutedChat]:
    """Let the router choose. Raises UnknownName for a choice that cannot be carried out."""
    chat = await route_chat(orchestrator, response_id, objective, persona, forced)
    decision = chat.decision
    if decision.problem is not None:
        raise UnknownName(str(decision.problem))
    registry = orchestrator.registry
    return resolve_role(registry, decision.role, decision.persona, decision.model, thinking=decision.thinking), chat


def _all_names(registry: Registry) -> list[str]:
    return list(dict.fromkeys([*chat_names(registry), *embedder_names(registry)]))
