"""Answer /props and /slots: what a model can do, and whether it is busy.

Settings are read-only, because the registry has them. Without `model`, the role that plans fall back on is described.
No model is loaded for an answer.
"""

from http import HTTPStatus
from importlib.metadata import version
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from orchestrator.api.dependencies import ServiceDep
from orchestrator.api.errors import DOCUMENTED
from orchestrator.api.openai.names import role_named
from orchestrator.errors import InputError, Problem

router = APIRouter(tags=["llama-server"], responses=dict(DOCUMENTED))

ModelName = Annotated[str | None, Query(description="A role, a persona or a model; the usual role if none is given.")]


class Modalities(BaseModel):
    """What may be in a prompt in addition to text."""

    vision: bool = False
    audio: bool = False


class GenerationSettings(BaseModel):
    """How a model is asked where a request does not say so."""

    n_ctx: int | None  # tokens of prompt and answer together; None if only another server knows it
    params: dict[str, Any]


class Props(BaseModel):
    """The properties of a model and its default settings."""

    default_generation_settings: GenerationSettings
    total_slots: int  # sequences that are generated at a time
    model_alias: str  # id in the registry
    model_path: str  # empty if another server runs the model
    chat_template: str  # empty if there is none, or another server has it
    modalities: Modalities = Modalities()
    build_info: str
    is_sleeping: bool  # not loaded; a request loads it


class Slot(BaseModel):
    """A place in which a model generates one sequence at a time."""

    id: int
    model: str
    n_ctx: int | None
    is_processing: bool  # only the number of busy slots is known: the first ones are reported as busy


@router.get("/props")
async def props(service: ServiceDep, model: ModelName = None) -> Props:
    """Describe a model: its context, its slots, its chat template."""
    role = role_named(model, service)
    entry = service.orchestrator.registry.models[role.model]
    template = entry.header.chat_template if entry.header is not None else None
    params = {
        "temperature": role.temperature,
        "top_p": role.top_p,
        "n_predict": -1 if role.max_tokens is None else role.max_tokens,
        "max_tokens": -1 if role.max_tokens is None else role.max_tokens,
    }
    return Props(
        default_generation_settings=GenerationSettings(n_ctx=role.context, params=params),
        total_slots=entry.slots,
        model_alias=role.model,
        model_path="" if entry.file is None else str(entry.file),
        chat_template=template or "",
        build_info=f"orchestrator {version('orchestrator')}",
        is_sleeping=role.model not in service.orchestrator.pool.resident,
    )


@router.get("/slots")
async def slots(
    service: ServiceDep,
    model: ModelName = None,
    fail_on_no_slot: Annotated[bool, Query(description="Answer 503 where no slot is free.")] = False,
) -> list[Slot]:
    """List the slots of a model, and which of them are busy."""
    name = role_named(model, service).model
    entry = service.orchestrator.registry.models[name]
    status = next(
        (row for row in service.orchestrator.pool.snapshot().models if row.model == name),
        None,
    )
    active = 0 if status is None else status.active
    if fail_on_no_slot and active >= entry.slots:
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, f"all {entry.slots} slots of {name} are busy")
    return [
        Slot(id=number, model=name, n_ctx=entry.countable_context, is_processing=number < active)
        for number in range(entry.slots)
    ]


@router.post("/slots/{slot}")
async def change_slot(
    slot: int, action: Annotated[Literal["save", "restore", "erase"], Query(description="As llama-server has it.")]
) -> None:
    """Refuse to save, restore or erase what a slot has computed."""
    problem = f"is {action}, and the slots of a model, such as {slot}, cannot be saved, restored or erased"
    accepted = "nothing: prompts that begin alike share what was computed of them, without being asked for"
    raise InputError(Problem("action", problem, accepted))
