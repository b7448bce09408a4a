"""List what can be asked under /v1/models."""

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from orchestrator.api.access import TheService
from orchestrator.api.errors import DOCUMENTED
from orchestrator.api.openai.embeddings import embedder_names
from orchestrator.api.openai.names import UnknownName, known_names

router = APIRouter(prefix="/v1", tags=["openai"], responses=dict(DOCUMENTED))


class ModelBody(BaseModel):
    """One name that can be asked."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "orchestrator"


class ModelList(BaseModel):
    """All names that can be asked."""

    object: Literal["list"] = "list"
    data: list[ModelBody]


@router.get("/models")
async def models(service: TheService) -> ModelList:
    """List every name that can be asked: `auto`, `orchestrate`, roles, personas, models, and the embedder."""
    return ModelList(data=[ModelBody(id=name) for name in _names(service)])


@router.get("/models/{name}")
async def model(name: str, service: TheService) -> ModelBody:
    """Tell whether a name can be asked."""
    names = _names(service)
    if name not in names:
        raise UnknownName(f"there is no model {name!r}; accepted: {', '.join(names)}")
    return ModelBody(id=name)


def _names(service: TheService) -> list[str]:
    registry = service.orchestrator.registry
    return list(dict.fromkeys([*known_names(registry), *embedder_names(registry)]))
