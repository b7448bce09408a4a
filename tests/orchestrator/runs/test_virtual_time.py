"""The real scheduler, loop, journal and pool in virtual time, on engines that are as fast as a `StepCostModel` says."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.contract import Generation
from orchestrator.events import Event
from orchestrator.history import Report
from orchestrator.journal import Journal
from orchestrator.runs import Orchestrator, Ports
from registry.load import find_registry, load_registry
from tests.orchestrator.run_jobs import execute, job, report_of, step
from tests.orchestrator.simulated_engine import SimulatedMachine
from tests.orchestrator.virtual_time import VirtualTimeLoop, run_virtually

REGISTRY = load_registry(find_registry(environment={}))
EPOCH = 1_800_000_000.0
WORDS = 99


class VirtualClock:
    """Tells the loop's time, as seconds since the epoch."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        return EPOCH + self._loop.time()


class StillJournal(Journal):
    """A journal that takes no virtual time: the disk is no part of what is simulated."""

    loop: VirtualTimeLoop

    async def append(self, run: str, events: Sequence[Event]) -> None:
        with self.loop.outside():
            await super().append(run, events)


def curve(sequences: int, threads: int) -> float:
    """A step of one sequence takes 0.1 s, so that its 100 tokens take 10 s; each further one adds 2 percent."""
    return 0.1 * (1 + 0.02 * (sequences - 1))


def write(request: Generation) -> str:
    return " ".join(["word"] * WORDS)


def virtual_loop() -> VirtualTimeLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop


def simulate(home: Path, steps: list[dict[str, Any]]) -> tuple[Report, SimulatedMachine, float]:
    """Run steps on simulated engines, and return the report, the engines, and the virtual seconds that it took."""
    machine = SimulatedMachine(curve, write)

    async def main() -> tuple[str, float]:
        running = virtual_loop()

        class JournalHere(StillJournal):
            loop = running

        ports = Ports(start_engine=machine.start, clock=lambda last: VirtualClock(running), journal=JournalHere.open)
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


def test_a_thousand_steps_of_ten_seconds_take_what_the_cost_curve_says(tmp_path: Path) -> None:
    report, machine, seconds = simulate(tmp_path / "home", [one for number in range(10) for one in chain(number, 100)])
    assert report.status == "done"
    assert [row.state for row in report.steps] == ["done"] * 1000
    assert all(len(row.attempts) == 1 for row in report.steps)
    (engine,) = machine.engines
    assert engine.steps == 100 * (WORDS + 1), "the ten chains were decoded together all the time"
    expected = machine.load_seconds + engine.steps * curve(10, 1)
    assert seconds == pytest.approx(expected, rel=1e-4)
    assert report.wall_seconds == pytest.approx(expected, abs=machine.load_seconds)


def test_more_steps_than_slots_wait_for_each_other(tmp_path: Path) -> None:
    slots = REGISTRY.models["tiny-large"].slots
    report, machine, seconds = simulate(tmp_path / "home", [chain(number, 1)[0] for number in range(2 * slots)])
    assert report.status == "done"
    assert seconds == pytest.approx(machine.load_seconds + 2 * (WORDS + 1) * curve(slots, 1), rel=1e-4)


def test_the_same_run_takes_the_same_virtual_time_again(tmp_path: Path) -> None:
    steps = [one for number in range(3) for one in chain(number, 3)]
    (first, _, seconds), (second, _, again) = (simulate(tmp_path / name, steps) for name in ("one", "two"))
    assert seconds == again
    times = [[(row.id, row.started, row.finished) for row in report.steps] for report in (first, second)]
    assert times[0] == times[1]
