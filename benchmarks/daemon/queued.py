"""Let many runs wait, kill the daemon, and see that each of them ends: none is lost."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import httpx2

from benchmarks.daemon.bodies import lasting, short
from benchmarks.daemon.figures import Part
from benchmarks.daemon.served import idle, metric, served, submit
from benchmarks.goals import exactly
from orchestrator.journal import JournalReader

CLIENTS: Final = 16
IN_THE_WAY: Final = 10
ROOM: Final = 100


async def measure(folder: Path, count: int) -> Part:
    """Submit `count` runs behind some that take long, kill the daemon, start it again, and wait for all of them."""
    home, told = folder / "home", dict[str, Any](runs=count)
    with served(home, runs_max_queued=count + ROOM, runs_max_running=1) as daemon:
        async with daemon.client(CLIENTS + 1) as client:
            blockers = [await submit(client, lasting()) for _ in range(IN_THE_WAY)]
            begun = time.perf_counter()
            accepted = await _accepted(client, count)
            told["accepted_per_second"] = round(count / (time.perf_counter() - begun), 1)
            told["waiting_at_the_end"] = await metric(client, "runs_waiting")
        daemon.kill()
    begun = time.perf_counter()
    with served(home, runs_max_queued=count + ROOM) as daemon:
        async with daemon.client() as client:
            told["restart_seconds"] = round(time.perf_counter() - begun, 2)
            told["listed_as_queued_after_restart"] = await metric(client, "runs_waiting")
            for run in blockers:
                await client.post(f"/v1/runs/{run}/cancel", json={})
            begun = time.perf_counter()
            await idle(client, 1.0)
            told["ended_per_second"] = round(count / (time.perf_counter() - begun), 1)
    ends = _ends(home, accepted)
    goals = [
        exactly("queued runs that were accepted", len(set(accepted)), count),
        exactly("queued runs that are done after a kill", ends["done"], count),
    ]
    return Part({**told, "ends": dict(ends)}, goals)


async def _accepted(client: httpx2.AsyncClient, count: int) -> list[str]:
    """Submit so many runs, through several connections, and return them."""

    async def some(number: int) -> list[str]:
        return [await submit(client, short("batch")) for _ in range(number, count, CLIENTS)]

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(some(number)) for number in range(CLIENTS)]
    return [run for task in tasks for run in task.result()]


def _ends(home: Path, runs: Sequence[str]) -> Counter[str]:
    """Return how the runs have ended, as the journal has it."""
    with JournalReader.open_to_read(home) as journal:
        known = {row.run: row.status for row in journal.runs()}
    return Counter(known.get(run, "lost") for run in runs)
