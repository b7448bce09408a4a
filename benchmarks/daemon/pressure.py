"""Submit more runs than the queue takes: the daemon refuses at once with 429, and accepts the retries in the end."""

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Final

import httpx2

from benchmarks.daemon.bodies import short
from benchmarks.daemon.figures import PartResult, spread
from benchmarks.daemon.process import running_daemon, status_of, wait_ended
from orchestrator.bench.goals import exactly

CLIENTS: Final = 200
MOST_QUEUED: Final = 40
ACCEPTED, BUSY = 201, 429


class Flood:
    """Counts the answers to the requests of all clients."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.without_retry_after = 0
        self.accepted: list[str] = []
        self.refusing: list[float] = []

    async def insist(self, client: httpx2.AsyncClient) -> None:
        """Submit a run until it is accepted, waiting after each refusal as long as the daemon says."""
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


async def measure(folder: Path, count: int) -> PartResult:
    """Submit `count` runs from CLIENTS clients, where only MOST_QUEUED may be queued."""
    flood, left = Flood(), iter(range(count))
    with running_daemon(folder / "home", runs_max_queued=MOST_QUEUED) as daemon:
        async with daemon.client(CLIENTS) as client:

            async def insist() -> None:
                for _ in left:
                    await flood.insist(client)

            begun = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for _ in range(CLIENTS):
                    group.create_task(insist())
            for run in flood.accepted:
                await wait_ended(client, run)
            seconds = time.perf_counter() - begun
            done = [await status_of(client, run) for run in flood.accepted].count("done")
    refused, others = flood.statuses[BUSY], flood.statuses.total() - flood.statuses[BUSY] - flood.statuses[ACCEPTED]
    row = {
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
    return PartResult(row, goals)
