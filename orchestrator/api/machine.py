"""The endpoint about the machine: its cores, its models, their caches and steps, and the queue."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import cast

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from orchestrator.api.dependencies import ServiceDep
from orchestrator.api.errors import DOCUMENTED
from orchestrator.engine.processor import usable_cpus
from orchestrator.pool.processor_times import ProcessorTimes
from orchestrator.pool.status import EngineState, PoolSnapshot
from orchestrator.service.queue import QueueLength
from orchestrator.task.modes import Priority

router = APIRouter(prefix="/v1", tags=["models"], responses=dict(DOCUMENTED))


class ProcessorLine(BaseModel):
    """Seconds of processor time so far. The difference of two answers says how many cores were used."""

    engines: dict[str, float] = Field(description="by model, of the engines that run now")
    daemon: float
    programs: float = Field(description="gates, tools and code, with those that have ended")


class MachineBody(BaseModel):
    """The machine at one moment."""

    at: float = Field(description="seconds of a clock that never runs backwards")
    processors: int = Field(description="logical processors that may be used; the pool has the cores")
    processor_seconds: ProcessorLine
    queue: Mapping[Priority, QueueLength] = Field(description="runs by class")
    pool: PoolSnapshot
    engines: tuple[EngineState, ...] = Field(description="those that have answered")


@router.get("/machine")
async def machine(request: Request, service: ServiceDep) -> MachineBody:
    """Return who uses the cores, which models are loaded, what their caches hold, and what their steps take."""
    snapshot, engines = await service.orchestrator.pool.inspect()
    models = {
        replica.pid: model.model
        for model in snapshot.models
        for replica in model.instances
        if replica.pid is not None and not replica.machine
    }
    times = cast(ProcessorTimes, request.app.state.processor_times)
    at, seconds = await asyncio.to_thread(lambda: (time.monotonic(), times.read(models)))  # a thread may have to wait
    return MachineBody(
        at=at,
        processors=usable_cpus(),
        processor_seconds=ProcessorLine(**asdict(seconds)),
        queue=service.queue_lengths,
        pool=snapshot,
        engines=engines,
    )
