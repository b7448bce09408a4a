"""Show and change what is loaded, and show who can be asked for what."""

from enum import StrEnum

from fastapi import APIRouter
from pydantic import BaseModel

from orchestrator.api.dependencies import ServiceDep
from orchestrator.api.errors import DOCUMENTED
from orchestrator.pool import ModelStatus, PoolSnapshot, UnknownModel
from registry.models import ModelEntry, RoleEntry

router = APIRouter(prefix="/v1", tags=["models"], responses=dict(DOCUMENTED))


class Verb(StrEnum):
    """What can be done with a model."""

    LOAD = "load"
    UNLOAD = "unload"
    PIN = "pin"
    UNPIN = "unpin"


class RoleLine(BaseModel):
    """One kind of work, and the model that does it."""

    name: str
    tier: str
    level: str | None
    model: str
    persona: str | None
    escalates_to: str | None
    usable: bool
    why_not: str | None
    description: str


class PersonaLine(BaseModel):
    """How work is done."""

    name: str
    text: str
    description: str


class EntryLine(BaseModel):
    """What the registry says of a model."""

    id: str
    residency: str
    context: int
    slots: int
    usable: bool
    why_not: str | None
    description: str


class RegistryBody(BaseModel):
    """The registry that is in use. While its files have `problems`, what they say now is not adopted."""

    path: str
    models: list[EntryLine]
    roles: list[RoleLine]
    personas: list[PersonaLine]
    problems: list[str]


class PersonaList(BaseModel):
    """All personas."""

    personas: list[PersonaLine]


@router.get("/pool")
async def pool(service: ServiceDep) -> PoolSnapshot:
    """Show every model: what it holds, and what its engines have counted."""
    return await service.orchestrator.survey()


@router.post("/pool/{model}/{verb}")
async def change(model: str, verb: Verb, service: ServiceDep) -> ModelStatus:
    """Load, unload, pin or unpin a model, and show it once that is done."""
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
        raise UnknownModel(model, f"model {model} has just left the registry")
    return status


@router.get("/registry")
async def registry(service: ServiceDep) -> RegistryBody:
    """Show models, roles and personas as the registry has them."""
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
    """List the personas."""
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
