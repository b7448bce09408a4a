"""Endpoints for the pool of models, the registry, and personas."""

import asyncio
from dataclasses import asdict, replace
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from orchestrator.api.dependencies import AccessDep, ServiceDep, StrictBody
from orchestrator.api.errors import DOCUMENTED, NotFound
from orchestrator.pool.errors import UnknownModel
from orchestrator.pool.status import ModelStatus, PoolSnapshot
from orchestrator.registry.rows import ModelRow, RoleRow, model_rows, role_rows
from orchestrator.run.personas import PersonaProposal, PersonaRow, UsedPersona, persona_rows, with_uses
from orchestrator.service.callers import Access
from orchestrator.service.service import Service
from orchestrator.task.personas import unknown_persona

router = APIRouter(prefix="/v1", tags=["models"], responses=dict(DOCUMENTED))


class Verb(StrEnum):
    """What can be done with a model of the pool."""

    LOAD = "load"
    UNLOAD = "unload"
    PIN = "pin"
    UNPIN = "unpin"


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


class RegistryBody(BaseModel):
    """The registry that is in use. While its files have `problems`, what they say now is not adopted."""

    path: str
    models: list[ModelRow]
    roles: list[RoleRow]
    personas: list[PersonaRow]
    problems: list[str]


class PersonaList(BaseModel):
    """The personas of the registry, and those that were made at run time."""

    personas: list[PersonaRow]


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
        models=model_rows(current),
        roles=role_rows(current),
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
async def persona(name: str, service: ServiceDep, access: AccessDep) -> UsedPersona:
    """Return a persona, and how it was used."""
    match = next((row for row in _personas(service, access, retired=True) if row.name == name), None)
    if match is None:
        raise NotFound(str(unknown_persona(name, service.orchestrator.registry.personas)))
    return with_uses(match, await asyncio.to_thread(service.orchestrator.journal.persona_uses))


@router.delete("/personas/{name}")
async def retire_persona(name: str, service: ServiceDep, access: AccessDep) -> PersonaRow:
    """Retire a persona that was made at run time. Runs that name it continue with it."""
    return _visible(PersonaRow(**asdict(await service.folder.personas.retire(name))), access)


def _personas(service: Service, access: Access, *, retired: bool = False) -> list[PersonaRow]:
    rows = persona_rows(service.orchestrator.registry, service.orchestrator.personas.made, with_retired=retired)
    return [_visible(row, access) for row in rows]


def _visible(row: PersonaRow, access: Access) -> PersonaRow:
    return row if access.sees(row.by) else replace(row, by="")
