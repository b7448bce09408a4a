"""Measure what our own part of a task costs by the number of its steps: the real scheduler, loop, journal and pool.

The engines are simulated on a virtual clock and answer at once, so the real time of a run is all ours, with what it
takes to simulate: reading the task, planning, events, commits to the disk, artifacts, and the last report.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.peers.rows import GrowthRow
from benchmarks.peers.suite import ROLE
from orchestrator.bench.critical_path.workloads import Document
from orchestrator.bench.simulate.clock import StillJournal, VirtualClock, run_virtually, virtual_loop
from orchestrator.bench.simulate.engines import SimulatedAnswer, SimulatedMachine, Write
from orchestrator.registry.load import PACKAGED, load_registry
from orchestrator.run.job import Job
from orchestrator.run.orchestrator import Orchestrator, Ports
from orchestrator.run.record.report import load_report
from orchestrator.task.taskir.parse import task_from

SIZES: Final = (10, 100, 1_000, 10_000, 100_000)
WIDTH: Final = 100  # how many chains run side by side


LEAST_RUNS: Final = 5  # a short run is measured this often, and a long one once
SHORT: Final = 100  # a run of at most this many steps is short


class NotDone(Exception):
    """A run of the measurement has failed; the message says how."""


def measure(steps: int) -> GrowthRow:
    """Return the real time of a run of `steps` steps: the median of several for a short one.

    A short run before them is not measured, since a process loads modules and fills caches in its first run. Raises
    NotDone, JournalError.
    """
    _seconds(min(steps, SHORT))
    return GrowthRow(steps, median(_seconds(steps) for _ in range(LEAST_RUNS if steps <= SHORT else 1)))


def _seconds(steps: int) -> float:
    with tempfile.TemporaryDirectory(prefix="bench-growth-") as folder:
        seconds: float = run_virtually(_run_of(steps, Path(folder)))
        return seconds


def chains(steps: int) -> Document:
    """Return a document of chains, in each of which a step reads what the one before has written.

    Its texts are short, because a document may have 10 MiB at most.
    """
    plan = [
        {
            "id": f"S{at}",
            "actor": ROLE,
            "action": "Go on.",
            "inputs": [f"a{at - WIDTH}"] if at > WIDTH else [],
            "outputs": [f"a{at}"],
        }
        for at in range(1, steps + 1)
    ]
    return {"objective": "a measurement", "plan": {"steps": plan}}


def _run_of(steps: int, home: Path) -> Callable[[], object]:
    document = chains(steps)
    registry = load_registry(PACKAGED)
    machine = SimulatedMachine(
        step_seconds=lambda file: lambda load: 0.001, write=_different_answers(), load_seconds=lambda file: 0.0
    )

    async def run() -> float:
        loop = virtual_loop()
        ports = Ports(
            start_engine=machine.start,
            clock=lambda last: VirtualClock(loop),
            journal=StillJournal.open,
            follows_registry=False,
        )
        async with Orchestrator.open(home, registry, ports) as orchestrator:
            await orchestrator.pool.load(registry.roles[ROLE].model)
            started = time.perf_counter()
            name = await orchestrator.submit(Job(None, task_from(document), None, "as-planned"))
            async for _ in orchestrator.watch(name):
                pass
            report = await asyncio.to_thread(load_report, orchestrator.journal, name)
            seconds = time.perf_counter() - started
            if report.status != "done":
                raise NotDone(f"a run of {steps} steps is {report.status}: {report.error}")
            return seconds

    return run


def _different_answers() -> Write:
    """Return a function that answers each request in other words, as equal artifacts would be stored only once."""
    numbers = count(1)
    return lambda request: SimulatedAnswer(f"answer {next(numbers)}", 1)
