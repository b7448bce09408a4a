"""Queue many runs, kill the daemon, start it again, and check that no run is lost."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import httpx2

from benchmarks.daemon.bodies import lasting, short
from benchmarks.daemon.figures import PartResult
from benchmarks.daemon.process import metric, running_daemon, submit, wait_idle
from orchestrator.bench.goals import exactly
from orchestrator.run.journal.reader import JournalReader

CLIENTS: Final = 16
BLOCKERS: Final = 10  # Long runs that keep the others in the queue

SPARE: Final = 100  # Places in the queue beyond those for the runs


async def measure(folder: Path, count: int) -> PartResult:
    """Submit `count` runs behind some long ones, kill the daemon, start it again, and wait for all of them."""
    home, row = folder / "home", dict[str, Any](runs=count)
    with running_daemon(home, runs_max_queued=count + SPARE, runs_max_running=1) as daemon:
        async with daemon.client(CLIENTS + 1) as client:
            blockers = [await submit(client, lasting()) for _ in range(BLOCKERS)]
            begun = time.perf_counter()
            accepted = await _accepted(client, count)
            row["accepted_per_second"] = round(count / (time.perf_counter() - begun), 1)
            row["waiting_at_the_end"] = await metric(client, "runs_waiting")
        daemon.kill()
    begun = time.perf_counter()
    with running_daemon(home, runs_max_queued=count + SPARE) as daemon:
        async with daemon.client() as client:
            row["restart_seconds"] = round(time.perf_counter() - begun, 2)
            row["listed_as_queued_after_restart"] = await metric(client, "runs_waiting")
            for run in blockers:
                await client.post(f"/v1/runs/{run}/cancel", json={})
            begun = time.perf_counter()
            await wait_idle(client, 1.0)
            row["ended_per_second"] = round(count / (time.perf_counter() - begun), 1)
    ends = _ends(home, accepted)
    goals = [
        exactly("queued runs that were accepted", len(set(accepted)), count),
        exactly("queued runs that are done after a kill", ends["done"], count),
    ]
    return PartResult({**row, "ends": dict(ends)}, goals)


async def _accepted(client: httpx2.AsyncClient, count: int) -> list[str]:
    """Submit `count` runs over several connections, and return their ids."""

    async def some(number: int) -> list[str]:
        return [await submit(client, short("batch")) for _ in range(number, count, CLIENTS)]

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(some(number)) for number in range(CLIENTS)]
    return [run for task in tasks for run in task.result()]


def _ends(home: Path, runs: Sequence[str]) -> Counter[str]:
    """Return how many runs have ended with each status, according to the journal."""
    with JournalReader.open_to_read(home) as journal:
        statuses = {row.run: row.status for row in journal.runs()}
    return Counter(statuses.get(run, "lost") for run in runs)
