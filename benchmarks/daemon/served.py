"""Run the daemon as a process of its own, on a state folder of its own, and talk to it over its socket."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
import psutil

from orchestrator.journal import Home

STARTING_SECONDS: Final = 300.0
ENDING_SECONDS: Final = 120.0
LOG_TAIL: Final = 2000
BASE: Final = "http://localhost"


class BenchmarkFailed(Exception):
    """The daemon did not do what a measurement needs."""


@dataclass(frozen=True, slots=True)
class Served:
    """A daemon: its state folder and its process."""

    home: Path
    process: subprocess.Popen[bytes]

    def client(self, connections: int = 100) -> httpx2.AsyncClient:
        """Return a client that has as many connections at a time, and waits as long as it takes."""
        limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=connections)
        transport = httpx2.AsyncHTTPTransport(uds=str(Home(self.home).socket), limits=limits)
        return httpx2.AsyncClient(transport=transport, base_url=BASE, timeout=None)

    @property
    def resident_bytes(self) -> int:
        """The memory of the daemon's own process that is resident; its engines have theirs."""
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait(ENDING_SECONDS)


@contextmanager
def served(home: Path, **settings: int | float) -> Iterator[Served]:
    """Start a daemon, with these values of its configuration (`runs_max_running=4`), and end it whatever happens."""
    command, environment = [sys.executable, "-m", "orchestrator.api"], _environment(home, settings)
    with open(home.parent / f"{home.name}.log", "ab") as log:
        process = subprocess.Popen(command, env=environment, stderr=log)  # noqa: S603 - our own program
        daemon = Served(home, process)
        try:
            _wait_ready(daemon)
            yield daemon
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(ENDING_SECONDS)


async def submit(client: httpx2.AsyncClient, body: Mapping[str, Any]) -> str:
    """Submit a run and return its id. Raises BenchmarkFailed."""
    answer = await client.post("/v1/runs", json=body)
    if answer.status_code != 201:
        raise BenchmarkFailed(f"a run was refused with {answer.status_code}: {answer.text[:300]}")
    return str(answer.json()["run_id"])


async def ended(client: httpx2.AsyncClient, run: str) -> None:
    """Return when a run has ended."""
    async with client.stream("GET", f"/v1/runs/{run}/events") as answer:
        async for _ in answer.aiter_raw():
            pass


async def status_of(client: httpx2.AsyncClient, run: str) -> str:
    """Return where a run is."""
    return str((await client.get(f"/v1/runs/{run}/result")).json()["status"])


async def metric(client: httpx2.AsyncClient, name: str) -> float:
    """Return a metric, all of its labels together."""
    lines = (await client.get("/metrics")).text.splitlines()
    named = (line for line in lines if line.startswith((f"orchestrator_{name} ", f"orchestrator_{name}{{")))
    return sum(float(line.rsplit(" ", 1)[1]) for line in named)


async def idle(client: httpx2.AsyncClient, seconds: float = 0.2) -> None:
    """Return when no run waits or runs any more, looked at every so many seconds."""

    async def none() -> bool:
        return not await metric(client, "runs_waiting") + await metric(client, "runs_running")

    await until(none, seconds)


async def until(holds: Callable[[], Awaitable[bool]], seconds: float) -> None:
    """Return when something holds in another process, looked at every so many seconds."""
    while not await holds():  # noqa: ASYNC110 - nothing tells us
        await asyncio.sleep(seconds)


def _environment(home: Path, settings: Mapping[str, int | float]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ORCHESTRATOR_", "XDG_"))}
    stated = {f"ORCHESTRATOR_{name}".upper(): str(value) for name, value in settings.items()}
    own = {"HOME": str(home), "ORCHESTRATOR_HOME": str(home), "ORCHESTRATOR_SERVER_DRAIN_SECONDS": "0"}
    return {**kept, **own, **stated}


def _wait_ready(daemon: Served) -> None:
    """Return when it takes runs. Raises BenchmarkFailed."""
    end = time.monotonic() + STARTING_SECONDS
    while not _answers(daemon):
        if daemon.process.poll() is not None or time.monotonic() > end:
            told = (daemon.home.parent / f"{daemon.home.name}.log").read_text(errors="replace")
            raise BenchmarkFailed(f"the daemon does not start: {told[-LOG_TAIL:]}")
        time.sleep(0.1)


def _answers(daemon: Served) -> bool:
    transport = httpx2.HTTPTransport(uds=str(Home(daemon.home).socket))
    with httpx2.Client(transport=transport, base_url=BASE, timeout=STARTING_SECONDS) as client:
        try:
            return client.get("/health/ready").is_success
        except httpx2.TransportError:
            return False
