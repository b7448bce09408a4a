"""Endpoints for the pool of models, the registry, and personas."""

from enum import StrEnum

from fastapi import APIRouter
from pydantic import BaseModel

from orchestrator.api.dependencies import ServiceDep
from orchestrator.api.errors import DOCUMENTED
from orchestrator.pool import ModelStatus, PoolSnapshot, UnknownModel
from registry.models import ModelEntry, RoleEntry

router = APIRouter(prefix="/v1", tags=["models"], responses=dict(DOCUMENTED))


class Verb(StrEnum):
    """What can be done with a model of the pool."""

    LOAD = "load"
    UNLOAD = "unload"
    PIN = "pin"
    UNPIN = "unpin"


class RoleLine(BaseModel):
    """A role of the registry."""

    name: str
    tier: str
    level: str | None
    model: str
    persona: str | None
    escalates_to: str | None
    usable: bool
    why_not: str | None
    """Why it cannot be used; None where it can."""
    description: str


class PersonaLine(BaseModel):
    """A persona of the registry."""

    name: str
    text: str
    """What it adds to the system prompt of a role."""
    description: str


class EntryLine(BaseModel):
    """A model of the registry."""

    id: str
    residency: str
    context: int
    slots: int
    usable: bool
    why_not: str | None
    """Why it cannot be used; None where it can."""
    description: str


class RegistryBody(BaseModel):
    """The registry that is in use. While its files have `problems`, what they say now is not adopted."""

    path: str
    models: list[EntryLine]
    roles: list[RoleLine]
    personas: list[PersonaLine]
    problems: list[str]


class PersonaList(BaseModel):
    """The personas of the registry."""

    personas: list[PersonaLine]


@router.get("/pool")
async def pool(service: ServiceDep) -> PoolSnapshot:
    """Return the state of every model: memory, requests, and the counters of its engines."""
    return await service.orchestrator.survey()


@router.post("/pool/{model}/{verb}")
async def change(model: str, verb: Verb, service: ServiceDep) -> ModelStatus:
    """Load, unload, pin or unpin a model, and return its state afterwards."""
    pool = service.orchestrator.pool
    match verb:
        case Verb.LOAD:
            await pool.load(model)
        case Verb.UNLOAD:
            await pool.unload(model)
        case Verb.PIN | Verb.UNPIN:
            pool.pin(model, verb is Verb.PIN)
    status = next((one for one in (await service.orchestrator.survey()).models if one.model == model), None)
    if status is None:
        raise UnknownModel(model, f"model {model} has just been removed from the registry")
    return status


@router.get("/registry")
async def registry(service: ServiceDep) -> RegistryBody:
    """Return the models, roles and personas of the registry."""
    found, watched = service.orchestrator.registry, service.orchestrator.registry_status
    return RegistryBody(
        path=str(found.path),
        models=[_entry(entry) for entry in found.models.values()],
        roles=[_role(role, found.why_not(role.name)) for role in found.roles.values()],
        personas=_personas(service),
        problems=[str(problem) for problem in watched.problems],
    )


@router.get("/personas")
async def personas(service: ServiceDep) -> PersonaList:
    """Return the personas of the registry."""
    return PersonaList(personas=_personas(service))


def _entry(entry: ModelEntry) -> EntryLine:
    return EntryLine(
        id=entry.id,
        residency=entry.residency,
        context=entry.context,
        slots=entry.slots,
        usable=entry.why_not is None,
        why_not=entry.why_not,
        description=entry.description,
    )


def _role(role: RoleEntry, why_not: str | None) -> RoleLine:
    return RoleLine(
        name=role.name,
        tier=role.tier,
        level=role.level,
        model=role.model,
        persona=role.persona,
        escalates_to=role.escalates_to,
        usable=why_not is None,
        why_not=why_not,
        description=role.description,
    )


def _personas(service: ServiceDep) -> list[PersonaLine]:
    known = service.orchestrator.registry.personas.values()
    return [PersonaLine(name=one.name, text=one.text, description=one.description) for one in known]
