"""Endpoints for the pool of models, the registry, and personas."""

import asyncio
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from orchestrator.api.dependencies import AccessDep, ServiceDep, StrictBody
from orchestrator.api.errors import DOCUMENTED, NotFound
from orchestrator.pool.errors import UnknownModel
from orchestrator.pool.status import ModelStatus, PoolSnapshot
from orchestrator.registry.models import ModelEntry, RoleEntry
from orchestrator.registry.persona import Maker
from orchestrator.run.personas import PersonaProposal
from orchestrator.service.callers import Access
from orchestrator.service.service import Service
from orchestrator.task.personas import MadePersona, unknown_persona

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
    why_not: str | None  # None if it is usable
    description: str


class PersonaLine(BaseModel):
    """A persona of the registry, or one that was made at run time."""

    name: str
    text: str  # added to the system prompt of a role
    description: str
    # `file` (the registry's), `user`, `plan` (of a request), or `memory` (for frequent tasks that are not done well)
    maker: Maker
    by: str = ""  # the caller, as `token:ann`, or the run that made it; empty if the caller may not see that
    made: float | None = None  # seconds since the epoch; None if it is the registry's
    retired: float | None = None  # seconds since the epoch; None while it is in use
    why_retired: str = ""


class UseLine(BaseModel):
    """How attempts by one role with the persona ended, of the runs that are kept."""

    role: str
    attempts: int
    succeeded: int
    failed: int
    last: float  # start of the last one, in seconds since the epoch


class PersonaUses(PersonaLine):
    """A persona, and how it was used."""

    uses: list[UseLine]


class PersonaBody(StrictBody):
    """A persona to add, which takes effect at once. Who makes it is the caller; a field `by` is refused."""

    name: str = Field(description="letters, digits, '_', '.' and '-', up to 64 characters")
    text: str = Field(description="what it adds to the system prompt of a role: at most 4,000 characters")
    description: str = Field(default="", description="what it is for: at most 400 characters")
    distinct: bool = Field(default=False, description="add it even if it says nearly the same as another persona")


class PlacedBody(BaseModel):
    """Where an added persona went."""

    name: str  # of the added persona, or of one that says nearly the same
    new: bool
    similarity: float  # of both texts, up to 1


class EntryLine(BaseModel):
    """A model of the registry."""

    id: str
    residency: str
    context: int
    slots: int
    usable: bool
    why_not: str | None  # None if it is usable
    description: str


class RegistryBody(BaseModel):
    """The registry that is in use. While its files have `problems`, what they say now is not adopted."""

    path: str
    models: list[EntryLine]
    roles: list[RoleLine]
    personas: list[PersonaLine]
    problems: list[str]


class PersonaList(BaseModel):
    """The personas of the registry, and those that were made at run time."""

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
    status = next((state for state in (await service.orchestrator.survey()).models if state.model == model), None)
    if status is None:
        raise UnknownModel(model, f"model {model} has just been removed from the registry")
    return status


@router.get("/registry")
async def registry(service: ServiceDep, access: AccessDep) -> RegistryBody:
    """Return the models, roles and personas of the registry."""
    current, watched = service.orchestrator.registry, service.orchestrator.registry_status
    return RegistryBody(
        path=str(current.path),
        models=[_entry(entry) for entry in current.models.values()],
        roles=[_role(role, current.why_not(role.name)) for role in current.roles.values()],
        personas=_personas(service, access),
        problems=[str(problem) for problem in watched.problems],
    )


@router.get("/personas")
async def personas(
    service: ServiceDep,
    access: AccessDep,
    retired: Annotated[bool, Query(description="List the retired ones too.")] = False,
) -> PersonaList:
    """List the personas that can be used."""
    return PersonaList(personas=_personas(service, access, retired=retired))


@router.post(
    "/personas",
    status_code=201,
    responses={200: {"model": PlacedBody, "description": "The persona that says nearly the same already."}},
)
async def add_persona(body: PersonaBody, service: ServiceDep, access: AccessDep, response: Response) -> PlacedBody:
    """Add a persona, unless there is one that says nearly the same. It is kept across restarts."""
    placed = await service.folder.personas.add(PersonaProposal(**body.model_dump(), by=access.key))
    if not placed.new:
        response.status_code = HTTPStatus.OK
    return PlacedBody(name=placed.name, new=placed.new, similarity=placed.similarity)


@router.get("/personas/{name}")
async def persona(name: str, service: ServiceDep, access: AccessDep) -> PersonaUses:
    """Return a persona, and how it was used."""
    match = next((line for line in _personas(service, access, retired=True) if line.name == name), None)
    if match is None:
        raise NotFound(str(unknown_persona(name, service.orchestrator.registry.personas)))
    uses = await asyncio.to_thread(service.orchestrator.journal.persona_uses)
    lines = [UseLine(**{key: getattr(use, key) for key in UseLine.model_fields}) for use in uses if use.persona == name]
    return PersonaUses(**match.model_dump(), uses=lines)


@router.delete("/personas/{name}")
async def retire_persona(name: str, service: ServiceDep, access: AccessDep) -> PersonaLine:
    """Retire a persona that was made at run time. Runs that name it continue with it."""
    return _persona_line(await service.folder.personas.retire(name), access)


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


def _personas(service: Service, access: Access, *, retired: bool = False) -> list[PersonaLine]:
    registry = service.orchestrator.registry
    at_run_time = [
        _persona_line(entry, access) for entry in service.orchestrator.personas.made if retired or entry.retired is None
    ]
    lines = [
        PersonaLine(name=entry.name, text=entry.text, description=entry.description, maker=entry.maker)
        for entry in registry.personas.values()
        if entry.maker == "file"
    ]
    return [*lines, *(entry for entry in at_run_time if all(entry.name != line.name for line in lines))]


def _persona_line(entry: MadePersona, access: Access) -> PersonaLine:
    line = PersonaLine(**{key: getattr(entry, key) for key in PersonaLine.model_fields})
    return line if access.sees(entry.by) else line.model_copy(update={"by": ""})
