"""Let many clients at once submit runs, follow their events and fetch their results."""

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Final

import httpx2

from benchmarks.daemon.bodies import short
from benchmarks.daemon.figures import PartResult, spread
from benchmarks.daemon.process import running_daemon, status_of, submit, wait_ended
from orchestrator.bench.goals import exactly

RUNS_EACH: Final = 3


async def measure(folder: Path, count: int) -> PartResult:
    """Let `count` clients, each with its own connections, do the same at the same time."""
    submitting: list[float] = []
    whole: list[float] = []
    statuses: Counter[str] = Counter()

    async def submit_runs(client: httpx2.AsyncClient) -> None:
        for _ in range(RUNS_EACH):
            begun = time.perf_counter()
            run = await submit(client, short())
            submitting.append(time.perf_counter() - begun)
            await wait_ended(client, run)
            whole.append(time.perf_counter() - begun)
            statuses[await status_of(client, run)] += 1

    with running_daemon(folder / "home") as daemon:
        async with daemon.client(2 * count) as client:
            begun = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for _ in range(count):
                    group.create_task(submit_runs(client))
            seconds = time.perf_counter() - begun
    row = {
        "clients": count,
        "runs": count * RUNS_EACH,
        "runs_per_second": round(count * RUNS_EACH / seconds, 1),
        "submit": spread(submitting),
        "from_submit_to_end": spread(whole),
        "ends": dict(statuses),
    }
    return PartResult(row, [exactly("runs of clients at once that are done", statuses["done"], count * RUNS_EACH)])
