"""Measure how a flood of batch runs slows interactive ones, and whether batch runs progress next to many of those."""

import asyncio
import statistics
import time
from pathlib import Path
from typing import Final

import httpx2

from benchmarks.daemon.bodies import modest
from benchmarks.daemon.figures import PartResult, spread
from benchmarks.daemon.process import running_daemon, submit, wait_ended
from orchestrator.bench.goals import at_least, at_most
from orchestrator.run.journal.reader import JournalReader
from orchestrator.service.queue import PATIENCE

ASKED: Final = 30
INSISTENT: Final = 16
SLOWER: Final = 4.0


async def measure(folder: Path, flood: int) -> PartResult:
    """Time interactive runs alone, then behind `flood` batch runs; then count batch runs that end next to a crowd."""
    with running_daemon(folder / "home") as daemon:
        async with daemon.client() as client:
            alone = await _interactive_seconds(client)
            batch = [await submit(client, modest("batch")) for _ in range(flood)]
            beside = await _interactive_seconds(client)
            behind = _ended_among(daemon.home, batch)
            share = await _crowded(client, daemon.home, batch)
            daemon.kill()
    slower = statistics.median(beside) / statistics.median(alone)
    row = {
        "batch_runs": flood,
        "interactive_alone": spread(alone),
        "interactive_behind_the_flood": spread(beside),
        "batch_runs_that_ended_meanwhile": behind,
        "share_of_batch_runs_beside_a_crowd": round(share, 3),
    }
    goals = [
        at_most("interactive runs behind a flood of batch runs, times slower", slower, SLOWER),
        at_least("share of batch runs beside a crowd of interactive ones", share, 1 / (2 * PATIENCE)),
    ]
    return PartResult(row, goals)


async def _interactive_seconds(client: httpx2.AsyncClient) -> list[float]:
    """Run interactive runs one after the other, and return the seconds that each took."""
    seconds = []
    for _ in range(ASKED):
        begun = time.perf_counter()
        await wait_ended(client, await submit(client, modest("interactive")))
        seconds.append(time.perf_counter() - begun)
    return seconds


async def _crowded(client: httpx2.AsyncClient, home: Path, batch: list[str]) -> float:
    """Let INSISTENT clients submit run after run, and return the share of batch runs among the runs that ended."""
    before, left = _ended_among(home, batch), iter(range(INSISTENT * 10))

    async def insist() -> None:
        for _ in left:
            await wait_ended(client, await submit(client, modest("interactive")))

    async with asyncio.TaskGroup() as group:
        for _ in range(INSISTENT):
            group.create_task(insist())
    after = _ended_among(home, batch)
    return (after - before) / (after - before + INSISTENT * 10)


def _ended_among(home: Path, runs: list[str]) -> int:
    with JournalReader.open_to_read(home) as journal:
        finish_times = {row.run: row.finished for row in journal.runs()}
    return sum(finish_times[run] is not None for run in runs)
