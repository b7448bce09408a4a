"""Simulate clusters of large machines with many runs at a time, and say how their throughput grows."""

import asyncio
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.peers.suite import ROLE
from benchmarks.simulate.validate import WORKER
from orchestrator.bench.critical_path.workloads import workloads
from orchestrator.bench.simulate.clock import run_virtually
from orchestrator.bench.simulate.machine import Machine, Overheads, read_machine
from orchestrator.bench.simulate.run import UNKNOWN, Writer, simulated_orchestrator
from orchestrator.registry.models import Registry
from orchestrator.run.job import Job
from orchestrator.run.record.report import load_report

SERVER: Final = Path(__file__).parents[2] / "examples" / "machines" / "epyc-9655.json"  # 96 cores
SIZES: Final = (1, 3, 10, 100)
LINEAR: Final = 10  # machines up to which throughput should grow nearly as their number


@dataclass(frozen=True, slots=True)
class Load:
    """Runs of one workload that are submitted at the same moment: `each` for each machine, or `fixed` in all."""

    name: str
    workload: str
    each: int = 0
    fixed: int = 0

    def runs(self, machines: int) -> int:
        return self.fixed or self.each * machines


LOADS: Final = (
    Load("wide-100", "wide-100", each=2),
    Load("shared", "shared", each=8),
    Load("irregular", "irregular", each=16),
    Load("1,000 runs of wide-4", "wide-4", fixed=1000),
)


@dataclass(frozen=True, slots=True)
class ScalingRow:
    """A load on a simulated cluster. `seconds` pass there until all runs have ended, `real_seconds` here."""

    load: str
    machines: int
    runs: int
    steps: int
    seconds: float
    critical_path: float  # of a run, the median, in seconds
    linear: float  # the steps a second of each machine, relative to those of one machine
    real_seconds: float


def servers(count: int, overheads: Overheads) -> Machine:
    """Return a cluster of large machines whose orchestrator takes as long as one that was measured."""
    server = read_machine(SERVER)
    roles = {**server.roles, ROLE: WORKER}
    return server.model_copy(update={"machines": count, "overheads": overheads, "roles": roles})


def scaling(
    registry: Registry,
    overheads: Overheads,
    loads: tuple[Load, ...],
    sizes: tuple[int, ...],
    say: Callable[[str], None],
) -> list[ScalingRow]:
    """Return a row for each load and size; the first of `sizes` is what the others are compared with."""
    rows: list[ScalingRow] = []
    for load in loads:
        first: float | None = None
        for size in sizes:
            begun, runs = time.perf_counter(), load.runs(size)
            seconds, steps, path = simulated(load, servers(size, overheads), registry, runs)
            pace = steps / seconds / size
            first = first or pace
            real = time.perf_counter() - begun
            rows.append(ScalingRow(load.name, size, runs, steps, seconds, path, pace / first, real))
            say(f"{load.name}, {size} machines: {runs} runs in {seconds:.1f} s, {pace / first:.2f} of linear")
    return rows


def simulated(load: Load, machine: Machine, base: Registry, runs: int) -> tuple[float, int, float]:
    """Return the virtual seconds until all runs have ended, their steps, and the median critical path in seconds."""
    (task,) = workloads()[load.workload].tasks.values()
    job, registry = Job(None, task, None, "as-planned"), machine.registry(base)

    async def main(home: Path) -> tuple[float, int, float]:
        loop = asyncio.get_running_loop()
        async with simulated_orchestrator(machine, registry, home, Writer(machine, 0, UNKNOWN).write) as entered:
            orchestrator, _ = entered
            await orchestrator.pool.load(WORKER)

            async def run_once() -> float:
                run = await orchestrator.submit(job)
                async for _ in orchestrator.watch(run):
                    pass
                report = load_report(orchestrator.journal, run)
                assert report.status == "done", report.error
                return report.critical_path.seconds

            begun = loop.time()
            paths = await asyncio.gather(*(run_once() for _ in range(runs)))
            return loop.time() - begun, runs * len(task.plan.steps), sorted(paths)[len(paths) // 2]

    with tempfile.TemporaryDirectory(prefix="bench-cluster-") as folder:
        seconds, steps, path = run_virtually(lambda: main(Path(folder)))
    return seconds, steps, path
