"""Measure the daemon's response times while its engines are busy, and what a bare socket and fsync take meanwhile."""

import asyncio
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import httpx2

from benchmarks.daemon.bodies import lasting, short
from benchmarks.daemon.figures import PartResult, percentile, spread
from benchmarks.daemon.process import BenchmarkFailed, metric, running_daemon, submit, wait_until
from orchestrator.bench.goals import at_least, at_most

GOAL_MS: Final = 50.0
BUSY_RUNS: Final = 16
PAUSE_SECONDS: Final = 0.01
ECHOED: Final = b"x" * 255 + b"\n"
BLOCK: Final = b"x" * 4096

Probe = Callable[[], Awaitable[object]]


async def measure(folder: Path, rounds: int) -> PartResult:
    """Send each request once a round, one after the other, while more runs are active than the engine has slots."""
    seconds: dict[str, list[float]] = defaultdict(list)
    busy: list[float] = []
    with running_daemon(folder / "home") as daemon:
        async with daemon.client() as client:
            for _ in range(BUSY_RUNS):
                await submit(client, lasting())
            await _until_busy(client)
            done = await _an_ended_run(client)
            async with _echoing(folder / "echo.sock") as echo:
                beside: Mapping[str, Probe] = {"bare socket": echo, "fsync of 4 KiB": partial(_fsync, folder)}
                probes = {**_requests(client, done), **beside}
                for _ in range(rounds):
                    for name, probe in probes.items():
                        seconds[name].append(await _timed(probe))
                    busy.append(await metric(client, "model_active"))
                    if busy[-1] < BUSY_RUNS / 4:
                        await submit(client, lasting())
                    await asyncio.sleep(PAUSE_SECONDS)
            daemon.kill()
    asked = [name for name in seconds if name not in ("bare socket", "fsync of 4 KiB")]
    worst = max(percentile(seconds[name], 99) for name in asked)
    share = sum(count > 0 for count in busy) / len(busy)
    goals = [
        at_most("control plane p99 while engines are busy, ms", 1000 * worst, GOAL_MS),
        at_least("share of rounds in which engines were busy", share, 0.95),
    ]
    latencies = {name: spread(samples) for name, samples in seconds.items()}
    return PartResult(
        {"rounds": rounds, "requests_that_decode": round(sum(busy) / len(busy), 1), "latencies": latencies}, goals
    )


def _requests(client: httpx2.AsyncClient, run: str) -> Mapping[str, Probe]:
    """Return the requests to the daemon, by name."""

    async def get(path: str) -> None:
        _check(await client.get(path))

    async def accept() -> None:
        accepted = _check(await client.post("/v1/runs", json=short("batch")))
        last.append(accepted.json()["run_id"])

    async def cancel() -> None:
        _check(await client.post(f"/v1/runs/{last.pop()}/cancel", json={}))

    last: list[str] = []
    return {
        "health": partial(get, "/health/ready"),
        "list of runs": partial(get, "/v1/runs?limit=20"),
        "result of a run": partial(get, f"/v1/runs/{run}/result"),
        "pool": partial(get, "/v1/pool"),
        "submit": accept,
        "cancel": cancel,
    }


def _check(answer: httpx2.Response) -> httpx2.Response:
    if not answer.is_success:
        raise BenchmarkFailed(f"{answer.request.url}: {answer.status_code}: {answer.text[:300]}")
    return answer


async def _timed(probe: Probe) -> float:
    begun = time.perf_counter()
    await probe()
    return time.perf_counter() - begun


async def _until_busy(client: httpx2.AsyncClient) -> None:
    async def busy() -> bool:
        return bool(await metric(client, "model_active"))

    await wait_until(busy, 0.1)


async def _an_ended_run(client: httpx2.AsyncClient) -> str:
    run = await submit(client, short("batch"))
    _check(await client.post(f"/v1/runs/{run}/cancel", json={}))
    return run


async def _fsync(folder: Path) -> None:
    """Write a block and fsync it, on the disk that the journal is on."""
    descriptor = os.open(folder / "block", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, BLOCK)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@asynccontextmanager
async def _echoing(path: Path) -> AsyncIterator[Probe]:
    """Yield a function that makes a round trip to a process that only echoes."""
    with _echo_server(path):
        reader, writer = await asyncio.open_unix_connection(str(path))

        async def echo() -> None:
            writer.write(ECHOED)
            await reader.readline()

        yield echo
        writer.close()


@contextmanager
def _echo_server(path: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.daemon.echo", str(path)]
    process = subprocess.Popen(command)  # noqa: S603 - our own program
    try:
        while not path.exists():
            time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()
