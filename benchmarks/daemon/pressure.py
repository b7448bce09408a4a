"""Ask for more than the daemon takes on: it has to say so at once, and everyone who comes back gets a place."""

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Final

import httpx2

from benchmarks.daemon.bodies import short
from benchmarks.daemon.figures import Part, spread
from benchmarks.daemon.served import ended, served, status_of
from benchmarks.goals import exactly

CLIENTS: Final = 200
MOST_QUEUED: Final = 40
ACCEPTED, BUSY = 201, 429


class Flood:
    """What came of the requests of all clients."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.without_retry_after = 0
        self.accepted: list[str] = []
        self.refusing: list[float] = []

    async def insist(self, client: httpx2.AsyncClient) -> None:
        """Submit a run, and come back when the daemon says, until it is accepted."""
        while True:
            begun = time.perf_counter()
            answer = await client.post("/v1/runs", json=short())
            self.statuses[answer.status_code] += 1
            if answer.status_code != BUSY:
                self.accepted.append(str(answer.json().get("run_id")))
                return
            self.refusing.append(time.perf_counter() - begun)
            wait = answer.headers.get("Retry-After", "")
            self.without_retry_after += not wait.isdigit()
            await asyncio.sleep(float(wait or 1))


async def measure(folder: Path, count: int) -> Part:
    """Submit `count` runs through CLIENTS connections where only MOST_QUEUED may wait."""
    flood, left = Flood(), iter(range(count))
    with served(folder / "home", runs_max_queued=MOST_QUEUED) as daemon:
        async with daemon.client(CLIENTS) as client:

            async def one() -> None:
                for _ in left:
                    await flood.insist(client)

            begun = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for _ in range(CLIENTS):
                    group.create_task(one())
            for run in flood.accepted:
                await ended(client, run)
            seconds = time.perf_counter() - begun
            done = [await status_of(client, run) for run in flood.accepted].count("done")
    refused, others = flood.statuses[BUSY], flood.statuses.total() - flood.statuses[BUSY] - flood.statuses[ACCEPTED]
    told = {
        "runs": count,
        "clients": CLIENTS,
        "may_wait": MOST_QUEUED,
        "refused": refused,
        "seconds": round(seconds, 1),
        "refusals": spread(flood.refusing or [0.0]),
    }
    goals = [
        exactly("runs that were done in the end, under pressure", done, count),
        exactly("answers under pressure that are neither a place nor 429", others, 0),
        exactly("429 without Retry-After", flood.without_retry_after, 0),
    ]
    return Part(told, goals)
