"""Start daemons that die, on a registry of one small model, and talk to them over their sockets."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil

from orchestrator.run.journal.home import Home

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("doomed_daemon.py")
STARTING_SECONDS = 300
ENDING_SECONDS = 120
ENDED = ("done", "failed", "cancelled")
REGISTRY = """
defaults: {residency: hot, context: 1024, slots: 8, batch_invariant: true, temperature: 0, max_tokens: 48,
           max_replans: 0}
models:
  only: {file: only.gguf, threads: 1}
roles:
  frontdoor: {model: only, tier: A, system: Plan the request as steps.}
  worker: {model: only, tier: C, system: Do the task., escalates_to: coder}
  coder: {model: only, tier: B, level: B1, system: Write the code.}
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a daemon lives: its state folder, the folder it takes its orders to die from, and its registry."""

    home: Path
    orders: Path
    registry: Path

    @classmethod
    def within(cls, folder: Path, registry: Path) -> "Place":
        """Return a place for a daemon that has never run."""
        place = cls(folder / "home", folder / "orders", registry)
        place.orders.mkdir(parents=True)
        return place

    def arm(self, writes: int) -> None:
        """Let the daemon die at one of its next writes; 1 is the next."""
        told = self.orders / "arm.told"
        told.write_text(str(writes))
        told.rename(self.orders / "arm")

    def disarm(self) -> str | None:
        """Let the next daemon live, and return where the last one died, if it did as it was told."""
        (self.orders / "arm").unlink(missing_ok=True)
        died = self.orders / "died"
        point = died.read_text() if died.exists() else None
        died.unlink(missing_ok=True)
        return point

    def set_clock(self, off: float) -> None:
        """Set the system clock of the daemon, which is `off` by so many seconds from now on."""
        told = self.orders / "clock.told"
        told.write_text(str(off))
        told.rename(self.orders / "clock")


class Daemon:
    """One process of the daemon."""

    def __init__(self, place: Place, **settings: str) -> None:
        self.place = place
        self._engines: list[psutil.Process] = []
        self._log = place.orders / f"stderr-{time.monotonic_ns()}.log"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ORCHESTRATOR_", "XDG_"))}
        environ = {
            **kept,
            "HOME": str(place.orders),
            "ORCHESTRATOR_HOME": str(place.home),
            "ORCHESTRATOR_REGISTRY": str(place.registry),
            "ORCHESTRATOR_SERVER_DRAIN_SECONDS": "0",
            "ORCHESTRATOR_FOLDER_MIN_FREE_BYTES": "0",
            "ORCHESTRATOR_MEMORY_USE": "shadow",  # what a run comes to may not depend on those before it
            "PYTHONPATH": str(ROOT),
            **settings,
        }
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen([sys.executable, PROGRAM, place.orders], env=environ, stderr=log)

    @property
    def said(self) -> str:
        """What it wrote to stderr."""
        return self._log.read_text(errors="replace")

    def wait_ready(self) -> bool:
        """Return whether the daemon takes runs: True once it does, False if it has died before."""
        takes = self._wait(self._takes_runs)
        self._engines = _children(self.process.pid)
        return takes

    def wait_listening(self) -> bool:
        """Return whether the daemon listens: True once it does, False if it has died before."""
        return self._wait(lambda: _listens(Home(self.place.home).socket))

    def _wait(self, there: Callable[[], bool]) -> bool:
        end = time.monotonic() + STARTING_SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < end, f"the daemon does not start: {self.said}"
            if there():
                return True
            time.sleep(0.02)
        return False

    def _takes_runs(self) -> bool:
        if not _listens(Home(self.place.home).socket):
            return False
        try:
            with self.client() as client:
                return client.get("/health/ready").is_success
        except httpx2.TransportError:  # it has just died
            return False

    def client(self) -> httpx2.Client:
        """Return a client on the socket."""
        transport = httpx2.HTTPTransport(uds=str(Home(self.place.home).socket))
        return httpx2.Client(transport=transport, base_url="http://localhost", timeout=STARTING_SECONDS)

    def kill(self) -> None:
        """Kill it here and now, and return when nothing of it is left."""
        self._engines = _children(self.process.pid)
        self.process.kill()
        self.gone()

    def gone(self) -> int:
        """Wait until it has ended, the engines included that were seen of it, and return the exit status."""
        status = self.process.wait(ENDING_SECONDS)
        _, alive = psutil.wait_procs(self._engines, ENDING_SECONDS)
        assert not alive, f"engines outlive the daemon: {alive}"
        return status

    def stop(self) -> int:
        """End it in order, and return the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.gone()


@contextmanager
def running(place: Place, **settings: str) -> Iterator[Daemon]:
    """Have a daemon that takes runs, and end it afterwards, if it lives."""
    daemon = Daemon(place, **settings)
    try:
        assert daemon.wait_ready(), f"the daemon does not start: {daemon.said}"
        yield daemon
    finally:
        if daemon.process.poll() is None:
            daemon.stop()


def submit(client: httpx2.Client, body: dict[str, Any], key: str) -> str:
    """Submit a run and return its id. Raises httpx2.TransportError where the daemon dies meanwhile."""
    answer = client.post("/v1/runs", json=body, headers={"Idempotency-Key": key})
    assert answer.is_success, answer.text
    return str(answer.json()["run_id"])


def wait_ended(client: httpx2.Client, run: str) -> None:
    """Return when a run has ended. Raises httpx2.TransportError where the daemon dies meanwhile."""
    client.get(f"/v1/runs/{run}/events").raise_for_status()
    status = client.get(f"/v1/runs/{run}/result").json()["status"]
    assert status in ENDED, f"the events of run {run} stop where it is {status}"


def make_registry(folder: Path) -> Path:
    """Write a registry of one model, and return its file."""
    shutil.copy(ROOT / "registry" / "tiny" / "small.gguf", folder / "only.gguf")
    path = folder / "registry.yaml"
    path.write_text(REGISTRY)
    return path


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as caller:
        return caller.connect_ex(str(path)) == 0
