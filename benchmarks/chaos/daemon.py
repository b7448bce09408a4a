"""A daemon that is killed and started again while others talk to it."""

import asyncio
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
import psutil

from benchmarks.daemon.process import BenchmarkFailed, DaemonProcess, running_daemon

# After how long a request is sent again that the daemon has not answered, since it was killed.
RETRY_SECONDS: Final = 0.2
GONE_SECONDS: Final = 30.0  # how long after its daemon's death an engine may take to end


@dataclass(frozen=True, slots=True)
class Footprint:
    """What the daemon's own process holds."""

    files: int  # Open file descriptors
    threads: int
    resident: int  # bytes of memory


class HarmedDaemon:
    """One state folder and the daemons that own it, one after the other."""

    def __init__(self, home: Path, settings: dict[str, int | float | str]) -> None:
        self.home = home
        self.pids: list[int] = []
        """The processes of all daemons so far."""
        self.outlived = 0
        """How many engines have outlived their daemon for GONE_SECONDS."""
        self._settings = settings
        self._stack = ExitStack()
        self._daemon: DaemonProcess | None = None
        self._client: httpx2.AsyncClient | None = None
        self._up = asyncio.Event()

    async def start(self) -> None:
        """Start a daemon, and return when it accepts runs. Raises BenchmarkFailed."""
        self._daemon = await asyncio.to_thread(self._stack.enter_context, running_daemon(self.home, **self._settings))
        self.pids.append(self._daemon.process.pid)
        if self._client is not None:
            await self._client.aclose()
        self._client = self._daemon.client()
        self._up.set()

    async def kill(self) -> None:
        """Kill the daemon, and wait until its engines have ended, too."""
        daemon, children = self._running(), psutil.Process(self._running().process.pid).children(recursive=True)
        self._up.clear()
        await asyncio.to_thread(daemon.kill)
        self._stack.close()
        _, alive = await asyncio.to_thread(psutil.wait_procs, children, GONE_SECONDS)
        self.outlived += len(alive)

    async def stop(self) -> int:
        """End the daemon in order, and return its exit status."""
        daemon = self._running()
        self._up.clear()
        if self._client is not None:
            await self._client.aclose()
        await asyncio.to_thread(self._stack.close)
        return int(daemon.process.returncode)

    async def ask(self, method: str, path: str, **more: Any) -> httpx2.Response:
        """Send a request again and again until a daemon answers it. Raises BenchmarkFailed if the daemon has ended."""
        while True:
            await self._up.wait()
            assert self._client is not None, "a daemon is up"
            with suppress(httpx2.TransportError):
                return await self._client.request(method, path, **more)
            if self._up.is_set() and self._running().process.poll() is not None:
                raise BenchmarkFailed(f"the daemon has ended by itself with {self._running().process.returncode}")
            await asyncio.sleep(RETRY_SECONDS)

    async def engines(self) -> list[int]:
        """Return the processes of the engines that are loaded."""
        models = (await self.ask("GET", "/v1/pool")).json()["models"]
        return [instance["pid"] for model in models for instance in model["instances"] if instance["pid"] is not None]

    def footprint(self) -> Footprint:
        """Return what the daemon's process holds now."""
        process = psutil.Process(self._running().process.pid)
        return Footprint(process.num_fds(), process.num_threads(), int(process.memory_info().rss))

    def _running(self) -> DaemonProcess:
        assert self._daemon is not None, "it was started"
        return self._daemon


def processes_of(home: Path) -> Iterator[psutil.Process]:
    """Yield the processes that were started by daemons of a state folder, also of those that are gone."""
    mark = f"ORCHESTRATOR_HOME={home}".encode()
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if process.pid != os.getpid() and mark in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                yield process


def signal_process(pid: int, number: signal.Signals) -> bool:
    """Send a signal to a process, and return whether it was there."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def kill_all(processes: Sequence[psutil.Process]) -> None:
    """Kill what is left, and wait for its end, so that nothing of a failed benchmark stays."""
    for process in processes:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, GONE_SECONDS)
