"""The endpoint that predicts a run on other machines."""

import asyncio
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from orchestrator.api.app import Endpoints
from orchestrator.api.dependencies import LimiterDep, ServiceDep, StrictBody
from orchestrator.api.errors import DOCUMENTED
from orchestrator.bench.simulate.question import (
    Answer,
    MeasuredModel,
    OtherMachine,
    Question,
    Replay,
    attempts_of,
    other_seconds,
    width_of,
)
from orchestrator.errors import InputError, Problem
from orchestrator.pool.status import EngineState, PoolSnapshot
from orchestrator.registry.models import Registry
from orchestrator.run.record.report import Report
from orchestrator.service.errors import Conflict

PROGRAM: Final = "orchestrator.bench.simulate.what_if"
SECONDS: Final = 120.0  # until a simulation is given up
MAX_ATTEMPTS: Final = 2000

router = APIRouter(prefix="/v1/runs", tags=["runs"], responses=dict(DOCUMENTED))


class MachineBody(StrictBody):
    """A machine to replay a run on."""

    cores: int | None = Field(default=None, ge=1, le=4096, description="as many as here if left out")
    replicas: int = Field(default=1, ge=1, le=64, description="of each model; the cores are divided among them")
    bandwidth: float | None = Field(
        default=None,
        gt=0,
        le=1024,
        allow_inf_nan=False,
        description="times the memory bandwidth; in proportion to the cores if left out",
    )

    def machine(self, here: int) -> OtherMachine:
        """Return the machine; this one has `here` cores. Raises InputError."""
        cores = self.cores or here
        if self.replicas > cores:
            raise InputError(
                Problem("replicas", f"{self.replicas} replicas cannot share {cores} cores", f"1 to {cores}")
            )
        return OtherMachine(cores, self.replicas, self.bandwidth or cores / here)


class WhatIfBody(StrictBody):
    """Machines to replay a run on."""

    machines: Annotated[list[MachineBody], Field(min_length=1, max_length=8)]


class ReplayLine(BaseModel):
    """How a run went, or would go. Times are in seconds."""

    cores: int
    replicas: int
    bandwidth: float = Field(description="times that of this machine")
    bytes: int = Field(description="of memory that its models take")
    seconds: float = Field(description="until the end")
    path: list[str] = Field(description="the steps of the critical path")
    path_seconds: float = Field(description="of the critical path")
    width: int = Field(description="the most attempts at once")


class WhatIfAnswer(BaseModel):
    """A run as measured here, and as predicted on other machines."""

    measured: ReplayLine
    machines: list[ReplayLine]
    other_seconds: float = Field(
        description="in the seconds of `machines`, as measured: what is not simulated, such as planning, gates, tools"
    )
    factor: float = Field(
        description="by which all steps take longer than engines say, so that the path here is as it was"
    )


@router.post("/{run}/what-if")
async def what_if(
    run: str, body: WhatIfBody, request: Request, service: ServiceDep, limiter: LimiterDep
) -> WhatIfAnswer:
    """Simulate a run that has ended on other machines, with what steps of its models took here.

    The models must be loaded. The real scheduler and pool run on a virtual clock.
    """
    report = await asyncio.to_thread(service.orchestrator.views.report, run)
    if report.status not in ("done", "failed", "cancelled"):
        raise Conflict(f"run {run} is {report.status}; accepted: a run that has ended")
    attempts = attempts_of(report)
    if not 0 < len(attempts) <= MAX_ATTEMPTS:
        accepted = f"a run with 1 to {MAX_ATTEMPTS:,} of them"
        raise InputError(Problem("run", f"{run} has {len(attempts):,} attempts that models answered", accepted))
    snapshot, states = await service.orchestrator.pool.inspect()
    names = dict.fromkeys(attempt.model for attempt in attempts)
    models = _measured_models(names, snapshot, states, service.orchestrator.registry)
    machines = tuple(machine.machine(snapshot.cores) for machine in body.machines)
    before, on_path = other_seconds(report)
    question = Question(
        str(service.registry_file), snapshot.cores, models, attempts, report.critical_path.seconds - on_path, machines
    )
    answer = await limiter.run_while_connected(request, lambda: _simulated(question))
    size = sum(model.bytes for model in models.values())
    return WhatIfAnswer(
        measured=_measured(report, snapshot.cores, size),
        machines=[
            _line(machine, replay, before, on_path, size)
            for machine, replay in zip(machines, answer.replays, strict=True)
        ],
        other_seconds=before + on_path,
        factor=answer.factor,
    )


def _measured_models(
    names: Iterable[str], snapshot: PoolSnapshot, states: Sequence[EngineState], registry: Registry
) -> dict[str, MeasuredModel]:
    engines = {state.model: state for state in states}
    loaded = {model.model: model for model in snapshot.models}
    measured: dict[str, MeasuredModel] = {}
    missing: list[str] = []
    for name in names:
        state, entry = engines.get(name), registry.models.get(name)
        if state is None or state.step_times is None or entry is None:
            missing.append(name)
            continue
        size = loaded[name].bytes // max(1, len(loaded[name].instances))
        counters = loaded[name].counters
        own = counters.own_seconds / max(1, counters.output_tokens) if counters is not None else 0.0
        measured[name] = MeasuredModel(state.step_times, max(1, state.threads), entry.options.slots, own, size)
    if missing:
        raise Conflict(f"only loaded models say what their steps take; accepted: load {', '.join(missing)} first")
    return measured


async def _simulated(question: Question) -> Answer:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", PROGRAM), stdin=pipe, stdout=pipe, stderr=pipe
    )
    try:
        async with asyncio.timeout(SECONDS):
            out, errors = await process.communicate(msgspec.json.encode(question))
    except TimeoutError as error:
        raise Conflict(f"the simulation took longer than {SECONDS:.0f} s; accepted: fewer machines at once") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        last = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise Conflict(f"the run cannot be simulated: {last}")
    return msgspec.json.decode(out, type=Answer)


def _measured(report: Report, cores: int, size: int) -> ReplayLine:
    return ReplayLine(
        cores=cores,
        replicas=1,
        bandwidth=1.0,
        bytes=size,
        seconds=report.wall_seconds,
        path=list(report.critical_path.steps),
        path_seconds=report.critical_path.seconds,
        width=width_of(report),
    )


def _line(machine: OtherMachine, replay: Replay, before: float, on_path: float, size: int) -> ReplayLine:
    return ReplayLine(
        cores=machine.cores,
        replicas=machine.replicas,
        bandwidth=machine.bandwidth,
        bytes=machine.replicas * size,
        seconds=replay.seconds + before + on_path,
        path=list(replay.path),
        path_seconds=replay.path_seconds + on_path,
        width=replay.width,
    )


ENDPOINTS: Final = Endpoints(router)
