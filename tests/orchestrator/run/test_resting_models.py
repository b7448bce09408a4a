"""Steps of a model whose engines keep failing wait until it is tried again, and end if it cannot come back."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.bench.simulate.clock import StillJournal, VirtualClock, run_virtually, virtual_loop
from orchestrator.bench.simulate.engines import SimulatedAnswer, SimulatedEngine, SimulatedMachine, words
from orchestrator.cli.live import progress_line
from orchestrator.engine.contract import EngineSpec, Generation
from orchestrator.engine.errors import EngineDied, LoadFailure, ModelLoadFailed
from orchestrator.pool.managed_model import FAILURE_WINDOW, MAX_FAILED_LOADS, MAX_FAILURES
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.orchestrator import Orchestrator, Ports
from orchestrator.run.record.progress_lines import ProgressLines
from orchestrator.run.updates import EventUpdate
from orchestrator.task.events import ModelAwaited
from tests.orchestrator.run_jobs import REGISTRY, execute, job, report_of, step

MODEL = REGISTRY.models["tiny-large"]
STEPS = 3 * MODEL.slots
DEADLINE = 30.0
"""Seconds that a step may run, less than a model rests."""


class FailingMachine(SimulatedMachine):
    """A machine on which the first loads fail."""

    def __init__(self, failing: int, kind: LoadFailure = "died") -> None:
        super().__init__(lambda file: lambda load: 0.1, self._answer)
        self.failing, self.kind = failing, kind
        self.started = asyncio.Semaphore(0)

    @staticmethod
    def _answer(request: Generation) -> SimulatedAnswer:
        return words("one two three")

    async def start(self, spec: EngineSpec) -> SimulatedEngine:
        """Load a model, or fail to."""
        if spec.name != MODEL.id:
            return await super().start(spec)
        if self.failing:
            self.failing -= 1
            await asyncio.sleep(0.5)
            raise ModelLoadFailed(spec.file, self.kind, "as the test says")
        engine = await super().start(spec)
        self.started.release()
        return engine


def queue() -> list[dict[str, Any]]:
    """Return more steps than the model has slots, none of which waits for another one."""
    return [step(f"S{n}", f"Say {n}.", [], [f"a{n}"], timeout_seconds=DEADLINE) for n in range(1, STEPS + 1)]


@asynccontextmanager
async def opened(home: Path, machine: SimulatedMachine) -> AsyncIterator[Orchestrator]:
    """Open an orchestrator on simulated engines, in virtual time."""
    running = virtual_loop()
    ports = Ports(start_engine=machine.start, clock=lambda last: VirtualClock(running), journal=StillJournal.open)
    async with Orchestrator.open(home, REGISTRY, ports) as orchestrator:
        yield orchestrator


def run_on(home: Path, machine: SimulatedMachine, work: Callable[[Orchestrator], Awaitable[str]]) -> str:
    """Return what `work` returns in virtual time."""

    async def main() -> str:
        async with opened(home, machine) as orchestrator:
            return await work(orchestrator)

    run: str = run_virtually(main)
    return run


def waits_of(home: Path, run: str) -> list[ModelAwaited]:
    """Return the waits that the journal has of a run."""
    with JournalReader.open_to_read(home) as journal:
        return [event for _, event in journal.events(run) if isinstance(event, ModelAwaited)]


def test_steps_wait_for_a_model_whose_engines_cannot_be_started_for_a_while(tmp_path: Path) -> None:
    machine = FailingMachine(MAX_FAILURES)
    run = run_on(tmp_path, machine, lambda orchestrator: execute(orchestrator, job(queue())))
    report = report_of(tmp_path, run)
    assert report.status == "done"
    assert all(len(row.attempts) == 1 for row in report.steps), "waiting is no attempt, and no retry"
    assert report.wall_seconds > FAILURE_WINDOW - 5 > DEADLINE, "waiting is not part of a step's time"
    waits = waits_of(tmp_path, run)
    assert {wait.step for wait in waits} == {row.id for row in report.steps}
    assert all(wait.seconds is not None and 0 < wait.seconds <= FAILURE_WINDOW for wait in waits)
    told = waits[0]
    assert "next try in 59 s" in told.reason
    assert "as the test says" in told.reason
    assert progress_line(told) == f"{told.step} waits: {told.reason}"
    assert ProgressLines().lines(told) == (f"{told.step} waits: {told.reason}",)
    assert report.steps[0].attempts[0].waits[0].model == MODEL.id


def test_only_running_steps_fail_when_an_engine_dies_again_and_again(tmp_path: Path) -> None:
    machine = FailingMachine(0)

    async def killed(orchestrator: Orchestrator) -> str:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(execute(orchestrator, job(queue())))
            for count in range(1, MAX_FAILURES + 1):
                await machine.started.acquire()
                await asyncio.sleep(0.15)
                engine = next(one for one in reversed(machine.engines) if one.spec.name == MODEL.id)
                assert (await engine.stats()).queued or count == MAX_FAILURES, "there are more steps than slots"
                engine.die(EngineDied("as the test says"))
        return task.result()

    report = report_of(tmp_path, run_on(tmp_path, machine, killed))
    assert report.status == "done"
    failed = sum(len(row.attempts) - 1 for row in report.steps)
    assert 0 < failed <= MAX_FAILURES * MODEL.slots, "those in the engine's queue did not fail"


@pytest.mark.parametrize("kind", ["died", "missing"])
def test_steps_end_with_the_reason_when_a_model_cannot_come_back(tmp_path: Path, kind: LoadFailure) -> None:
    machine = FailingMachine(1 << 30, kind)
    report = report_of(tmp_path, run_on(tmp_path, machine, lambda one: execute(one, job(queue()))))
    assert report.status == "failed"
    assert all(len(row.attempts) == 1 and "as the test says" in str(row.cause) for row in report.steps)
    loads = (1 << 30) - machine.failing
    assert loads == (MAX_FAILED_LOADS if kind == "died" else 1)
    assert kind != "died" or f"could not be loaded {MAX_FAILED_LOADS} times in a row" in str(report.steps[0].cause)
    assert report.wall_seconds < 5 * FAILURE_WINDOW


def test_a_run_that_waits_for_a_model_is_cancelled_at_once(tmp_path: Path) -> None:
    machine = FailingMachine(1 << 30)

    async def cancelled(orchestrator: Orchestrator) -> str:
        run = await orchestrator.submit(job(queue()))
        async for update in orchestrator.watch(run):
            if isinstance(update, EventUpdate) and isinstance(update.event, ModelAwaited):
                await orchestrator.cancel(run)
        return run

    report = report_of(tmp_path, run_on(tmp_path, machine, cancelled))
    assert report.status == "cancelled"
    assert report.wall_seconds < 10
