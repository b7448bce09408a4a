"""Run the daemon in its own process with its own state folder, and call its API over its socket."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
import psutil

from orchestrator.run.journal.home import Home

STARTING_SECONDS: Final = 300.0
ENDING_SECONDS: Final = 120.0
LOG_TAIL: Final = 2000
BASE: Final = "http://localhost"


class BenchmarkFailed(Exception):
    """The daemon did not do what a measurement needs, so there is no result."""


@dataclass(frozen=True, slots=True)
class DaemonProcess:
    """A running daemon: its state folder and its process."""

    home: Path
    process: subprocess.Popen[bytes]

    def client(self, connections: int = 100) -> httpx2.AsyncClient:
        """Return a client with up to `connections` connections and no time limit."""
        limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=connections)
        transport = httpx2.AsyncHTTPTransport(uds=str(Home(self.home).socket), limits=limits)
        return httpx2.AsyncClient(transport=transport, base_url=BASE, timeout=None)

    @property
    def resident_bytes(self) -> int:
        """Return the resident memory of the daemon's process, without that of its engines."""
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def kill(self) -> None:
        """Kill the process without warning, as a power cut would."""
        self.process.kill()
        self.process.wait(ENDING_SECONDS)


@contextmanager
def running_daemon(home: Path, **settings: int | float | str) -> Iterator[DaemonProcess]:
    """Run a daemon while the block lasts. `settings` are values of its configuration, such as `runs_max_running=4`.

    Raises BenchmarkFailed if it does not start.
    """
    command, environment = [sys.executable, "-m", "orchestrator.app"], _environment(home, settings)
    with open(home.parent / f"{home.name}.log", "ab") as log:
        process = subprocess.Popen(command, env=environment, stderr=log)  # noqa: S603 - our own program
        daemon = DaemonProcess(home, process)
        try:
            _wait_ready(daemon)
            yield daemon
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(ENDING_SECONDS)


async def submit(client: httpx2.AsyncClient, body: Mapping[str, Any]) -> str:
    """Submit a run and return its id. Raises BenchmarkFailed if it is refused."""
    answer = await client.post("/v1/runs", json=body)
    if answer.status_code != 201:
        raise BenchmarkFailed(f"a run was refused with {answer.status_code}: {answer.text[:300]}")
    return str(answer.json()["run_id"])


async def wait_ended(client: httpx2.AsyncClient, run: str) -> None:
    """Wait until a run has ended."""
    async with client.stream("GET", f"/v1/runs/{run}/events") as answer:
        async for _ in answer.aiter_raw():
            pass


async def status_of(client: httpx2.AsyncClient, run: str) -> str:
    """Return the status of a run."""
    return str((await client.get(f"/v1/runs/{run}/result")).json()["status"])


async def metric(client: httpx2.AsyncClient, name: str) -> float:
    """Return the value of a metric, summed over its labels."""
    lines = (await client.get("/metrics")).text.splitlines()
    samples = (line for line in lines if line.startswith((f"orchestrator_{name} ", f"orchestrator_{name}{{")))
    return sum(float(line.rsplit(" ", 1)[1]) for line in samples)


async def wait_idle(client: httpx2.AsyncClient, seconds: float = 0.2) -> None:
    """Wait until no run is queued or running, checking every `seconds`."""

    async def none() -> bool:
        return not await metric(client, "runs_waiting") + await metric(client, "runs_running")

    await wait_until(none, seconds)


async def wait_until(holds: Callable[[], Awaitable[bool]], seconds: float) -> None:
    """Wait until a condition in another process holds, checking every `seconds`."""
    while not await holds():  # noqa: ASYNC110 - the other process sends no event
        await asyncio.sleep(seconds)


def _environment(home: Path, settings: Mapping[str, int | float | str]) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("ORCHESTRATOR_", "XDG_"))}
    stated = {f"ORCHESTRATOR_{name}".upper(): str(value) for name, value in settings.items()}
    own = {"HOME": str(home), "ORCHESTRATOR_HOME": str(home), "ORCHESTRATOR_SERVER_DRAIN_SECONDS": "0"}
    return {**inherited, **own, **stated}


def _wait_ready(daemon: DaemonProcess) -> None:
    """Wait until the daemon accepts runs. Raises BenchmarkFailed if it does not start."""
    end = time.monotonic() + STARTING_SECONDS
    while not _answers(daemon):
        if daemon.process.poll() is not None or time.monotonic() > end:
            log = (daemon.home.parent / f"{daemon.home.name}.log").read_text(errors="replace")
            raise BenchmarkFailed(f"the daemon does not start: {log[-LOG_TAIL:]}")
        time.sleep(0.1)


def _answers(daemon: DaemonProcess) -> bool:
    path = str(Home(daemon.home).socket)
    with socket.socket(socket.AF_UNIX) as listening, suppress(OSError):
        listening.connect(path)  # the HTTP client leaves its socket open if nobody listens
        return _is_ready(path)
    return False


def _is_ready(path: str) -> bool:
    transport = httpx2.HTTPTransport(uds=path)
    with httpx2.Client(transport=transport, base_url=BASE, timeout=STARTING_SECONDS) as client:
        try:
            return client.get("/health/ready").is_success
        except httpx2.TransportError:
            return False
