"""List the names that can be used as `model`, under /v1/models."""

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from orchestrator.api.dependencies import ServiceDep
from orchestrator.api.errors import DOCUMENTED, UnknownName
from orchestrator.api.openai.names import ORCHESTRATE, all_names, known_name
from orchestrator.registry.forms import EMBEDDER
from orchestrator.registry.models import ModelEntry
from orchestrator.service.service import Service
from orchestrator.task.lexical import NAME as LEXICAL

Ability = Literal["chat", "completion", "embeddings", "rerank"]

router = APIRouter(prefix="/v1", tags=["openai"], responses=dict(DOCUMENTED))


class ModelBody(BaseModel):
    """One name that can be used as `model`."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "orchestrator"
    context_length: int | None = None  # tokens of prompt and answer together; None if unknown, or not of one model
    max_model_len: int | None = None  # the same, under vLLM's name
    abilities: list[Ability] = []
    aliases: list[str] = []


class ModelList(BaseModel):
    """All names that can be used as `model`."""

    object: Literal["list"] = "list"
    data: list[ModelBody]


@router.get("/models")
async def models(service: ServiceDep) -> ModelList:
    """List every name that can be used as `model`: `auto`, `orchestrate`, roles, personas, models, embedders.

    Behind them come the aliases of the configuration, but for those that hold `*`.
    """
    registry = service.orchestrator.registry
    names = all_names(registry)
    aliases = [alias for alias in service.configuration.server.aliases if "*" not in alias and alias not in names]
    return ModelList(data=[_body(name, service) for name in [*names, *aliases]])


@router.get("/models/{name:path}")
async def model(name: str, service: ServiceDep) -> ModelBody:
    """Return the entry of one name, where it can be used as `model`."""
    registry = service.orchestrator.registry
    names = all_names(registry)
    if known_name(name, service) not in names:
        raise UnknownName(f"there is no model {name!r}; accepted: {', '.join(names)}")
    return _body(name, service)


def _body(name: str, service: Service) -> ModelBody:
    registry, resolved = service.orchestrator.registry, known_name(name, service)
    aliases = [alias for alias, target in service.configuration.server.aliases.items() if target == name]
    role = registry.roles.get(resolved)
    model = role.model if role is not None else registry.model_named(resolved)
    if model is None:
        return ModelBody(id=name, abilities=_general_abilities(resolved), aliases=aliases)
    entry = registry.models[model]
    context = entry.countable_context
    return ModelBody(
        id=name,
        context_length=context,
        max_model_len=context,
        abilities=_abilities(entry),
        aliases=[*entry.aliases, *aliases],
    )


def _abilities(entry: ModelEntry) -> list[Ability]:
    if entry.ranks:
        return ["rerank"]
    if entry.embeds:
        return ["embeddings", "rerank"]
    return ["chat"] if entry.is_remote else ["chat", "completion"]


def _general_abilities(name: str) -> list[Ability]:
    # Of `auto`, `orchestrate`, a persona or the lexical embedder.
    if name in (LEXICAL, EMBEDDER):
        return ["embeddings", "rerank"]
    return ["chat"] if name == ORCHESTRATE else ["chat", "completion"]
