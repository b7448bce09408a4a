"""Run many short runs over a few connections, and measure whether the daemon's memory grows."""

import asyncio
import time
from pathlib import Path
from typing import Final

import httpx2

from benchmarks.daemon.bodies import short
from benchmarks.daemon.figures import PartResult, slope
from benchmarks.daemon.process import running_daemon, submit, wait_ended
from orchestrator.bench.goals import at_most

CLIENTS: Final = 8
SAMPLES: Final = 200
WARMING: Final = 0.25  # the share of runs before memory counts, as caches fill first

OF_A_DAY: Final = 50_000  # how many short runs stand for 24 hours of use

GOAL_MIB: Final = 16.0
MIB: Final = 1 << 20


async def measure(folder: Path, count: int) -> PartResult:
    """Run `count` short runs, sampling the daemon's resident memory, and fit a line through the samples."""
    points: list[tuple[float, float]] = []
    left = iter(range(1, count + 1))
    every = max(1, count // SAMPLES)
    with running_daemon(folder / "home") as daemon:
        async with daemon.client(2 * CLIENTS) as client:

            async def work(client: httpx2.AsyncClient) -> None:
                for number in left:
                    await wait_ended(client, await submit(client, short()))
                    if number % every == 0:
                        points.append((number, daemon.resident_bytes / MIB))

            begun = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for _ in range(CLIENTS):
                    group.create_task(work(client))
            seconds = time.perf_counter() - begun
            database = (daemon.home / "journal.db").stat().st_size
    counted = [point for point in points if point[0] > WARMING * count]
    grown = slope(counted) * OF_A_DAY
    row = {
        "runs": count,
        "runs_per_second": round(count / seconds, 1),
        "resident_mib_at_first": round(points[0][1], 1),
        "resident_mib_after_warming": round(counted[0][1], 1),
        "resident_mib_at_the_end": round(points[-1][1], 1),
        "slope_bytes_per_run": round(slope(counted) * MIB, 1),
        "database_bytes_per_run": round(database / count),
    }
    return PartResult(row, [at_most(f"growth over {OF_A_DAY} runs, extrapolated from {count}, MiB", grown, GOAL_MIB)])
