"""The real scheduler, loop, journal and pool in virtual time, on engines that are as fast as a `StepCostModel` says."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from orchestrator.bench.simulate.clock import StillJournal, VirtualClock, run_virtually, virtual_loop
from orchestrator.bench.simulate.engines import SimulatedAnswer, SimulatedMachine, words
from orchestrator.engine.contract import Generation
from orchestrator.pool.dispatch import BATCH_SLACK
from orchestrator.run.gates.shares import JobRunner
from orchestrator.run.orchestrator import Orchestrator, Ports
from orchestrator.run.record.report import Report
from orchestrator.run.sandbox.contract import JobOutcome, SandboxJob
from orchestrator.task.modes import Priority
from tests.orchestrator.run_jobs import REGISTRY, execute, job, report_of, step

WORDS = 99
LOAD_SECONDS = 1.0


def curve(sequences: int, threads: int) -> float:
    """A step of one sequence takes 0.1 s, so that its 100 tokens take 10 s; each further one adds 2 percent."""
    return 0.1 * (1 + 0.02 * (sequences - 1))


def write(request: Generation) -> SimulatedAnswer:
    word = f"word{crc32(request.messages[-1].content.encode())}"  # an answer that repeats an input is refused
    return words(" ".join([word] * WORDS))


def simulate(home: Path, steps: list[dict[str, Any]]) -> tuple[Report, SimulatedMachine, float]:
    """Run steps on simulated engines, and return the report, the engines, and the virtual seconds that it took."""
    machine = SimulatedMachine(lambda file: lambda load: curve(load.sequences, load.threads), write)

    async def main() -> tuple[str, float]:
        running = virtual_loop()
        ports = Ports(start_engine=machine.start, clock=lambda last: VirtualClock(running), journal=StillJournal.open)
        async with Orchestrator.open(home, REGISTRY, ports) as orchestrator:
            run = await execute(orchestrator, job(steps))
            return run, running.time()

    run, seconds = run_virtually(main)
    return report_of(home, run), machine, seconds


def chain(number: int, length: int) -> list[dict[str, Any]]:
    """Return steps of which each reads what the one before has written."""
    first = number * length + 1
    before = {at: [f"a{at - 1}"] if at > first else [] for at in range(first, first + length)}
    return [step(f"S{at}", "Go on.", reads, [f"a{at}"]) for at, reads in before.items()]


@pytest.mark.parametrize("length", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_ten_chains_of_steps_of_ten_seconds_take_what_the_cost_curve_says(tmp_path: Path, length: int) -> None:
    steps = [one for number in range(10) for one in chain(number, length)]
    report, machine, seconds = simulate(tmp_path / "home", steps)
    assert report.status == "done"
    assert [row.state for row in report.steps] == ["done"] * 10 * length
    assert all(len(row.attempts) == 1 for row in report.steps)
    (engine,) = machine.engines
    assert engine.steps == length * (WORDS + 1), "the ten chains were decoded together all the time"
    expected = LOAD_SECONDS + engine.steps * curve(10, 1)
    assert seconds == pytest.approx(expected, rel=1e-4)
    assert report.wall_seconds == pytest.approx(expected, abs=LOAD_SECONDS)


def test_more_steps_than_slots_wait_for_each_other(tmp_path: Path) -> None:
    slots = REGISTRY.models["tiny-large"].slots
    report, _, seconds = simulate(tmp_path / "home", [chain(number, 1)[0] for number in range(2 * slots)])
    assert report.status == "done"
    assert seconds == pytest.approx(LOAD_SECONDS + 2 * (WORDS + 1) * curve(slots, 1), rel=1e-4)


def test_an_interactive_chain_does_not_queue_behind_a_whole_batch(tmp_path: Path) -> None:
    slots = REGISTRY.models["tiny-large"].slots
    machine = SimulatedMachine(lambda file: lambda load: curve(load.sequences, load.threads), write)

    async def main() -> tuple[str, str]:
        running = virtual_loop()
        ports = Ports(start_engine=machine.start, clock=lambda last: VirtualClock(running), journal=StillJournal.open)
        async with Orchestrator.open(tmp_path / "home", REGISTRY, ports) as orchestrator, asyncio.TaskGroup() as group:
            many = replace(job([chain(number, 1)[0] for number in range(3 * slots)]), priority="batch")
            batch = group.create_task(execute(orchestrator, many))
            await asyncio.sleep(LOAD_SECONDS + 1.0)
            interactive = group.create_task(execute(orchestrator, job(chain(0, 2))))
        return batch.result(), interactive.result()

    batch, interactive = (report_of(tmp_path / "home", run) for run in run_virtually(main))
    assert (batch.status, interactive.status) == ("done", "done")
    step = (WORDS + 1) * curve(slots, 1)
    assert interactive.wall_seconds == pytest.approx(2 * step, abs=LOAD_SECONDS + 2.0), "it takes a slot of the batch"
    assert batch.wall_seconds > 1.3 * interactive.wall_seconds


def test_the_same_run_takes_the_same_virtual_time_again(tmp_path: Path) -> None:
    steps = [one for number in range(3) for one in chain(number, 3)]
    (first, _, seconds), (second, _, again) = (simulate(tmp_path / name, steps) for name in ("one", "two"))
    assert seconds == again
    times = [[(row.id, row.started, row.finished) for row in report.steps] for report in (first, second)]
    assert times[0] == times[1]


def test_a_plan_that_has_run_twice_is_predicted_within_a_quarter(tmp_path: Path) -> None:
    """Half of its steps wait for a slot, which no typical rate of a step tells."""
    slots = REGISTRY.models["tiny-large"].slots
    machine = SimulatedMachine(lambda file: lambda load: curve(load.sequences, load.threads), write)

    async def main() -> list[str]:
        running = virtual_loop()
        ports = Ports(start_engine=machine.start, clock=lambda last: VirtualClock(running), journal=StillJournal.open)
        async with Orchestrator.open(tmp_path / "home", REGISTRY, ports) as orchestrator:
            wide = job([one for number in range(4 * slots) for one in chain(number, 1)])
            return [await execute(orchestrator, wide) for _ in range(3)]

    paths = [report_of(tmp_path / "home", run).critical_path for run in run_virtually(main)]
    assert abs(paths[0].predicted_seconds / paths[0].seconds - 1) > 0.25, "it is no test if this is easily known"
    assert abs(paths[2].predicted_seconds / paths[2].seconds - 1) < 0.25


@pytest.mark.parametrize(("priority", "more"), [("interactive", 0.0), ("batch", BATCH_SLACK)])
def test_the_slack_of_a_step_reaches_the_jobs_of_its_gates(
    priority: Priority, more: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slacks: dict[str, float] = {}

    async def record(self: JobRunner, asked: SandboxJob, slack: float = 0.0) -> JobOutcome:
        (name,) = asked.files
        slacks[name] = slack
        return JobOutcome(exit_code=0, stdout=b"[]")

    monkeypatch.setattr(JobRunner, "run", record)
    machine = SimulatedMachine(lambda file: lambda load: curve(load.sequences, load.threads), write)
    steps = [
        step("S1", "Write.", [], ["a.py"], gates=["lint"]),
        step("S2", "Write on.", ["a.py"], ["b.py"], gates=["lint"]),
        step("S3", "Write.", [], ["c.py"], gates=["lint"]),
    ]

    async def main() -> None:
        running = virtual_loop()
        ports = Ports(start_engine=machine.start, clock=lambda last: VirtualClock(running), journal=StillJournal.open)
        async with Orchestrator.open(tmp_path / "home", REGISTRY, ports) as orchestrator:
            await execute(orchestrator, replace(job(steps), priority=priority))

    run_virtually(main)
    assert slacks["a.py"] == slacks["b.py"] == more
    assert slacks["c.py"] > more, "it is done long before the others"
