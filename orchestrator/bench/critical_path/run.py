"""Run workloads on the product's own orchestrator, as planned and serially in pairs, and measure each run."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from orchestrator.bench.critical_path.measure import TaskMeasurement, Way, row_of
from orchestrator.bench.critical_path.workloads import Workload
from orchestrator.registry.models import Registry
from orchestrator.run.job import Job
from orchestrator.run.orchestrator import Orchestrator, Ports
from orchestrator.run.record.report import load_report
from orchestrator.task.modes import Mode

_PORTS = Ports(follows_registry=False)  # the registry may be one in which a single model plays all roles
_RESET_PEAK = "5\n"  # what resets the peak of resident memory when it is written to `/proc/PID/clear_refs`, see proc(5)


@dataclass(frozen=True, slots=True)
class Round:
    """One run of a workload that has to be measured."""

    workload: Workload
    way: Way
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalPathPlan:
    """What to measure, where, and who receives progress."""

    home: Path  # the state folder, of which nobody else may be the owner
    registry: Registry
    models: tuple[str, ...]  # the models that are loaded before the first run
    folder: Path | None = None  # instead of the folders of the workloads
    mode: Mode = "as-planned"  # how the plan is read in the runs that are not serial
    # Called with each round that has ended.
    measured: Callable[[Round, Sequence[TaskMeasurement]], None] = field(default=lambda round_, rows: None)


def rounds_of(workload: Workload, count: int, *, serial: bool) -> list[Round]:
    """Return the rounds of a workload: a cold run, then `count` pairs, of which every other begins with the serial run.

    The order changes so that what drifts in a machine, such as its clock, favours neither side.
    """
    rounds = [Round(workload, "as-planned", 0)]
    for number in range(1, count + 1):
        pair = [Round(workload, "as-planned", number)]
        if serial and workload.paired:
            pair.append(Round(workload, "serial", number))
        rounds += pair if number % 2 else pair[::-1]
    return rounds


async def measure(bench: CriticalPathPlan, rounds: Sequence[Round]) -> None:
    """Run the rounds. Each workload gets engines of its own, so that its first run finds no prefixes in their caches.

    Raises JournalError, PoolError, EngineError, and InputError for a task that cannot be run here.
    """
    for workload in dict.fromkeys(measured_round.workload.name for measured_round in rounds):
        workload_rounds = [measured_round for measured_round in rounds if measured_round.workload.name == workload]
        async with Orchestrator.open(bench.home, bench.registry, _PORTS) as orchestrator:
            for model in bench.models:
                await orchestrator.pool.load(model)
            for measured_round in workload_rounds:
                bench.measured(measured_round, await _run(bench, orchestrator, measured_round))


async def _run(bench: CriticalPathPlan, orchestrator: Orchestrator, planned_round: Round) -> list[TaskMeasurement]:
    mode: Mode = bench.mode if planned_round.way == "as-planned" else "serial"
    workload = planned_round.workload
    folder = bench.folder or workload.folder
    with _peak_memory() as peak:
        runs = await asyncio.gather(
            *(_ended(orchestrator, Job(None, task, folder, mode)) for task in workload.tasks.values())
        )
        used = peak()
    rows = []
    for task, run in zip(workload.tasks, runs, strict=True):
        report = await asyncio.to_thread(load_report, orchestrator.journal, run)
        rows.append(row_of(report, workload.name, task, planned_round.way, planned_round.number, used))
    return rows


async def _ended(orchestrator: Orchestrator, job: Job) -> str:
    run = await orchestrator.submit(job)
    async for _ in orchestrator.watch(run):
        pass
    return run


@contextlib.contextmanager
def _peak_memory() -> Iterator[Callable[[], int]]:
    """Yield a function that returns the most memory, in bytes, that this process and its children took in the block.

    It is the sum of the peaks of each process, by the kernel's own mark; 0 where it has none.
    """
    for process in _processes():
        with contextlib.suppress(OSError):
            Path(f"/proc/{process.pid}/clear_refs").write_text(_RESET_PEAK, encoding="ascii")
    yield lambda: sum(map(_peak_of, _processes()))


def _processes() -> list[psutil.Process]:
    own = psutil.Process()
    return [own, *own.children(recursive=True)]


def _peak_of(process: psutil.Process) -> int:
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), 0)
