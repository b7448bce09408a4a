"""Heads and standbys as processes of their own, also in a network namespace, and what can be asked of them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from orchestrator.run.journal.home import Home
from orchestrator.run.journal.reader import JournalReader
from orchestrator.task.events import Event
from tests.orchestrator.api.daemon_process import listens

ROOT = Path(__file__).parents[3]
PATIENCE = 90.0
SECONDS = 4.0
"""For which a lease is given. Each of its renewals takes some milliseconds, but these machines are busy."""


@dataclass
class Machine:
    """A state folder, and the process that has it: `serve` or `standby`."""

    home: Path
    settings: Mapping[str, str]
    prefix: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] = field(init=False)

    def start(self, program: str) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("ORCHESTRATOR_", "XDG_"))}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", program],
                env={
                    **environ,
                    "HOME": str(self.home),
                    "ORCHESTRATOR_HOME": str(self.home),
                    "ORCHESTRATOR_SERVER_DRAIN_SECONDS": "1",
                    "PYTHONPATH": str(ROOT),
                    **self.settings,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def serve(self) -> None:
        self.start("orchestrator.app")

    def stand_by(self) -> None:
        self.start("orchestrator.cluster.standby")

    @property
    def log(self) -> Path:
        return self.home.parent / f"{self.home.name}.log"

    def until_says(self, text: str) -> None:
        """Wait until it has printed this."""
        end = time.monotonic() + PATIENCE
        while text not in self.log.read_text("utf-8", "replace"):
            assert time.monotonic() < end, f"it does not say {text!r}: {self.log.read_text()[-3000:]}"
            time.sleep(0.05)

    def client(self) -> httpx2.Client:
        transport = httpx2.HTTPTransport(uds=str(Home(self.home).socket))
        return httpx2.Client(transport=transport, base_url="http://localhost", timeout=PATIENCE)

    def until_ready(self) -> None:
        """Wait until it is a daemon that accepts runs."""
        end = time.monotonic() + PATIENCE
        while True:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < end, self.log.read_text()[-3000:]
            with suppress(httpx2.TransportError):
                if listens(Home(self.home).socket):
                    with self.client() as client:
                        if client.get("/health/ready").is_success:
                            return
            time.sleep(0.05)

    def until_standby(self, state: str) -> dict[str, Any]:
        """Wait until this head says that its standby has this state."""
        return self._until_status(lambda status: status["state"] == state)

    def until_arbiter(self, *, answers: bool) -> dict[str, Any]:
        """Wait until this head says that the arbiter answers, or does not."""
        return self._until_status(lambda status: (status["problem"] is None) == answers)

    def _until_status(self, matches: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        with self.client() as client:
            while True:
                status: dict[str, Any] = client.get("/v1/nodes").json()["standby"]
                if matches(status):
                    return status
                assert time.monotonic() < end, status
                time.sleep(0.05)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def wait(self) -> int:
        return self.process.wait(PATIENCE)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(PATIENCE)

    def events(self, run: str) -> list[Event]:
        with JournalReader.open_to_read(self.home) as journal:
            return [event for _, event in journal.events(run)]

    def runs(self) -> list[str]:
        with JournalReader.open_to_read(self.home) as journal:
            return [row.run for row in journal.runs()]


@contextmanager
def machine(
    home: Path, ray: str, port: int, host: str = "127.0.0.1", prefix: tuple[str, ...] = ()
) -> Iterator[Machine]:
    """Return a machine whose process, if it was started, ends with the block."""
    home.mkdir()
    settings = {
        "ORCHESTRATOR_CLUSTER_RAY": ray,
        "ORCHESTRATOR_CLUSTER_FOLDER": str(home.parent / "cluster"),
        "ORCHESTRATOR_CLUSTER_STANDBY": f"{host}:{port}",
        "ORCHESTRATOR_CLUSTER_SILENCE_SECONDS": str(SECONDS),
        **{name: os.environ[name] for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN") if name in os.environ},
    }
    made = Machine(home, settings, prefix)
    try:
        yield made
    finally:
        if hasattr(made, "process"):
            made.end()


def shown_events(client: httpx2.Client, run: str, number: int, kind: str) -> list[dict[str, Any]]:
    """Return the events of a run that the daemon shows, up to the one of this kind that is its `number`th."""
    events: list[dict[str, Any]] = []
    with client.stream("GET", f"/v1/runs/{run}/events") as answer:
        for line in answer.iter_lines():
            if line.startswith("data:"):
                event = json.loads(line.removeprefix("data:"))
                events.append(event)
                if sum(other.get("kind") == kind for other in events) == number:
                    return events
    raise AssertionError(f"the run ended: {[event.get('kind') for event in events]}")
