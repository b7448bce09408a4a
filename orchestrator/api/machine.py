"""The endpoint about the machine: its cores, its models, their caches and steps, and the queue."""

from collections.abc import Mapping
from typing import Annotated, cast

from fastapi import APIRouter, Query, Request
from pydantic import Field

from orchestrator.api.dependencies import ServiceDep
from orchestrator.api.errors import DOCUMENTED
from orchestrator.api.machine_history import MachineHistory, ProcessorSample
from orchestrator.engine.processor import usable_cpus
from orchestrator.pool.status import EngineState, PoolSnapshot
from orchestrator.service.queue import QueueLength
from orchestrator.task.modes import Priority

router = APIRouter(prefix="/v1", tags=["models"], responses=dict(DOCUMENTED))


class MachineBody(ProcessorSample):
    """The machine at one moment."""

    processors: int = Field(description="logical processors that may be used; the pool has the cores")
    queue: Mapping[Priority, QueueLength] = Field(description="runs by class")
    pool: PoolSnapshot
    engines: tuple[EngineState, ...] = Field(description="those that have answered")
    history: tuple[ProcessorSample, ...] = Field(description="of the last hour, each 5 seconds; oldest first")


@router.get("/machine")
async def machine(
    request: Request,
    service: ServiceDep,
    after: Annotated[
        float | None, Query(description="Also the samples of the last hour after this `at`, in `history`; 0 for all.")
    ] = None,
) -> MachineBody:
    """Return who uses the cores, which models are loaded, what their caches hold, and what their steps take."""
    snapshot, engines = await service.orchestrator.pool.inspect()
    history = cast(MachineHistory, request.app.state.machine_history)
    sample = await history.measure(snapshot)
    return MachineBody(
        at=sample.at,
        processors=usable_cpus(),
        processor_seconds=sample.processor_seconds,
        queue=service.queue_lengths,
        pool=snapshot,
        engines=engines,
        history=() if after is None else history.after(after),
    )
