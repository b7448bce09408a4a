"""Run the real daemon as a process of its own, on the embedded models, with its socket and a TCP port."""

import os
import secrets
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from orchestrator.run.journal.home import Home
from tests.orchestrator.api.forked_daemons import ForkedProcess, fork_daemon

ROOT = Path(__file__).parents[3]
RECORDS = ROOT / "examples" / "records"
STARTING_SECONDS = 300
ENDING_SECONDS = 120
ANSWER_SECONDS = 300


@dataclass(frozen=True)
class Running:
    """A daemon: its state folder, its port and its process."""

    home: Path
    port: int
    process: ForkedProcess

    @property
    def token(self) -> str:
        """The token that requests over TCP need."""
        return (self.home / "api.token").read_text().strip()

    def client(self) -> httpx2.Client:
        """Return a client on the socket."""
        transport = httpx2.HTTPTransport(uds=str(Home(self.home).socket))
        return httpx2.Client(transport=transport, base_url="http://localhost", timeout=ANSWER_SECONDS)

    def tcp(self, **headers: str) -> httpx2.Client:
        """Return a client on the port, without the token unless `headers` have it."""
        return httpx2.Client(base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=ANSWER_SECONDS)


@contextmanager
def running_daemon(home: Path, open_files: int | None = None, /, **settings: str) -> Iterator[Running]:
    """Start a daemon with these further environment variables, and shut it down at the end of the block.

    The daemon is forked from a process that has imported the program. `open_files` is how many descriptors it may open.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ORCHESTRATOR_", "XDG_"))}
    port = free_port()
    environ = {
        **kept,
        "HOME": str(home),
        "ORCHESTRATOR_HOME": str(home),
        "ORCHESTRATOR_SERVER_TCP": f"127.0.0.1:{port}",
        "ORCHESTRATOR_SERVER_DRAIN_SECONDS": "1",
        "PYTHONPATH": str(ROOT),
        **settings,
    }
    with open(home.parent / f"{home.name}.log", "wb") as log:
        process = fork_daemon(environ, log, open_files)
        daemon = Running(home, port, process)
        try:
            wait_ready(daemon)
            yield daemon
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(ENDING_SECONDS)


def wait_ready(daemon: Running) -> None:
    """Wait until the daemon is ready."""
    end = time.monotonic() + STARTING_SECONDS
    while True:
        assert daemon.process.poll() is None, "the daemon has ended while it started"
        assert time.monotonic() < end, "the daemon is not ready"
        if listens(Home(daemon.home).socket):
            with daemon.client() as client:
                if client.get("/health/ready").is_success:
                    return
        time.sleep(0.1)


def listens(path: Path) -> bool:
    """Return whether a process listens on a socket."""
    with socket.socket(socket.AF_UNIX) as caller:
        return caller.connect_ex(str(path)) == 0


def free_port() -> int:
    """Return a port that is free at the moment, below those that the system gives to clients of other tests."""
    while True:
        port = secrets.choice(range(10_000, 30_000))
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def summary(name: str = "a", output: str = "summary.txt", **more: Any) -> dict[str, Any]:
    """Return the body of a request for a run of one step, which reads a file of the examples."""
    step = {"id": "S1", "actor": "worker", "action": f"Summarize {name}.txt.", "inputs": [f"{name}.txt"]}
    task = {"objective": "a test", "plan": {"steps": [{**step, "outputs": [output], "max_tokens": 64}]}}
    return {"task": task, "directory": str(RECORDS), **more}


def lasting(tokens: int = 1024) -> dict[str, Any]:
    """Return the body of a request for a run that takes a while: each of its steps writes as much as it may."""
    steps = [
        {
            "id": f"S{number}",
            "actor": "worker",
            "action": f"Write a list of {number} numbers.",
            "outputs": [f"list{number}"],
            "output_schema": {"type": "array", "items": {"type": "integer"}, "minItems": 200},
            "depends_on": [f"S{number - 1}"] if number > 1 else [],
            "max_tokens": tokens,
        }
        for number in range(1, 6)
    ]
    return {"task": {"objective": "a long test", "plan": {"steps": steps}}}


def active_requests(daemon: Running) -> int:
    """Return how many requests are generating."""
    with daemon.client() as client:
        return sum(model["active"] for model in client.get("/v1/pool").json()["models"])


def written_tokens(daemon: Running) -> int:
    """Return how many tokens the engines that run now have written.

    An engine that does not answer at once is shown with older counters, or with none, so two looks have to agree.
    """
    latest: dict[str, int] | None = None
    while True:
        with daemon.client() as client:
            loaded = [model for model in client.get("/v1/pool").json()["models"] if model["pid"] is not None]
        before, latest = latest, None
        if all(model["counters"] is not None for model in loaded):
            latest = {model["model"]: model["counters"]["output_tokens"] for model in loaded}
            if latest == before:
                return sum(latest.values())


@contextmanager
def cancelled(daemon: Running, tokens: int) -> Iterator[None]:
    """Check that an answer of `tokens` tokens, whose client goes in the block, ends before it is whole."""
    before = written_tokens(daemon)
    yield
    while active_requests(daemon):  # it ends in any case
        pass
    assert written_tokens(daemon) - before < tokens


def submitted(client: httpx2.Client, body: dict[str, Any]) -> str:
    """Submit a run and return its id."""
    answer = client.post("/v1/runs", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["run_id"])


def wait_submitted(client: httpx2.Client, request: str) -> str:
    """Wait until the newest run is the one of this request, and return its id."""
    end = time.monotonic() + 100
    while True:
        (newest,) = client.get("/v1/runs", params={"limit": 1}).json()["runs"] or [{"request": ""}]
        if newest["request"] == request:
            return str(newest["run_id"])
        assert time.monotonic() < end
        time.sleep(0.01)


def begun_and_left(daemon: Running, body: bytes, request: str, **headers: str) -> str:
    """Send a chat with this body, close the connection as soon as the run of the request is accepted; return its id."""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with daemon.client() as client, socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(Home(daemon.home).socket))
        caller.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        return wait_submitted(client, request)


def finished(client: httpx2.Client, run: str) -> dict[str, Any]:
    """Wait until a run has ended, and return its result."""
    client.get(f"/v1/runs/{run}/events").raise_for_status()
    body = client.get(f"/v1/runs/{run}/result").json()
    assert isinstance(body, dict)
    return body


def executed(client: httpx2.Client, body: dict[str, Any]) -> dict[str, Any]:
    """Submit a run, wait until it has ended, and return its result."""
    return finished(client, submitted(client, body))
