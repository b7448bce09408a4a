"""Measure what a flood of batch runs does to interactive ones, and whether batch runs get on beside many of those."""

import asyncio
import statistics
import time
from pathlib import Path
from typing import Final

import httpx2

from benchmarks.daemon.bodies import modest
from benchmarks.daemon.figures import Part, spread
from benchmarks.daemon.served import ended, served, submit
from benchmarks.goals import at_least, at_most
from orchestrator.journal import JournalReader
from orchestrator.service.queue import PATIENCE

ASKED: Final = 30
INSISTENT: Final = 16
SLOWER: Final = 4.0


async def measure(folder: Path, flood: int) -> Part:
    """Ask interactively alone, then behind `flood` batch runs; then let batch runs wait beside an interactive crowd."""
    with served(folder / "home") as daemon:
        async with daemon.client() as client:
            alone = await _asked(client)
            batch = [await submit(client, modest("batch")) for _ in range(flood)]
            beside = await _asked(client)
            behind = _ended_among(daemon.home, batch)
            share = await _crowded(client, daemon.home, batch)
            daemon.kill()
    slower = statistics.median(beside) / statistics.median(alone)
    told = {
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
    return Part(told, goals)


async def _asked(client: httpx2.AsyncClient) -> list[float]:
    """Return how long interactive runs take, one after the other."""
    seconds = []
    for _ in range(ASKED):
        begun = time.perf_counter()
        await ended(client, await submit(client, modest("interactive")))
        seconds.append(time.perf_counter() - begun)
    return seconds


async def _crowded(client: httpx2.AsyncClient, home: Path, batch: list[str]) -> float:
    """Let INSISTENT clients ask on and on while batch runs wait, and return the share of these in what ended."""
    before, left = _ended_among(home, batch), iter(range(INSISTENT * 10))

    async def insist() -> None:
        for _ in left:
            await ended(client, await submit(client, modest("interactive")))

    async with asyncio.TaskGroup() as group:
        for _ in range(INSISTENT):
            group.create_task(insist())
    after = _ended_among(home, batch)
    return (after - before) / (after - before + INSISTENT * 10)


def _ended_among(home: Path, runs: list[str]) -> int:
    with JournalReader.open_to_read(home) as journal:
        known = {row.run: row.finished for row in journal.runs()}
    return sum(known[run] is not None for run in runs)
