"""What the commands ask of a daemon, and what they make of its answers: here it is a server that notes the requests."""

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer

import pytest

from orchestrator.app import ROOT
from orchestrator.cli.foreground import RunClient
from orchestrator.cli.settings import Settings
from orchestrator.run.journal.journal import Journal
from orchestrator.run.updates import EventUpdate, Progress, Update
from orchestrator.task.events import Event, RunAccepted, RunFinished, encode_event
from tests.orchestrator.cli.cli_command import Cli
from tests.registry.sources.model_server import SECONDS_TO_END

STEP = {"id": "S1", "actor": "worker", "action": "Do it.", "outputs": ["s"]}
TASK = {"objective": "a test", "plan": {"steps": [STEP]}}
MODEL = {"model": "m", "state": "ready", "residency": "warm", "pinned": False, "bytes": 1, "active": 0, "requests": 0}


@dataclass
class Played:
    """The registry that the daemon uses, and the requests that it got: method, path, key."""

    registry: str = "/their/registry.yaml"
    got: list[tuple[str, str, str | None]] = field(default_factory=list)


@pytest.fixture
def daemon(home: Path) -> Iterator[Played]:
    """A daemon on the command's state folder, in which run R has not ended. It goes away when it is to tell of it."""
    asyncio.run(begin_run(home))
    played = Played()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/v1/registry":
                self.answer({"path": played.registry})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            played.got.append(("POST", self.path, self.headers["Idempotency-Key"]))
            self.answer({"run_id": "R"} if self.path == "/v1/runs" else {**MODEL, "threads": None, "reason": None})

        def answer(self, told: object) -> None:
            body = json.dumps(told).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingUnixStreamServer(str(home / "api.sock"), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, args=(SECONDS_TO_END,))
        serving.start()
        yield played
        server.shutdown()
        serving.join()


async def begin_run(home: Path) -> None:
    with Journal.open(home) as journal:
        await journal.append("R", [RunAccepted(at=1.0, run="R", mode="as-planned", request="Do it.")])


def test_a_daemon_that_goes_away_is_reported_in_words(command: Cli, daemon: Played) -> None:
    for words in (("watch", "R"), ("submit", "Do it.", "--wait")):
        ended = command(*words)
        assert ended.code == 1
        assert ended.err.endswith("error: the daemon has ended; it continues run R when it starts again\n")
        told = command(*words, "--json").json
        assert (told["run_id"], told["error"].partition(";")[0]) == ("R", "the daemon has ended")


def test_a_run_is_followed_whatever_registry_the_command_has(
    command: Cli, daemon: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHESTRATOR_REGISTRY", "no/such.yaml")
    assert command("submit", "Do it.", "--wait", "--json").json["run_id"] == "R"
    assert command("--registry", "no/such.yaml", "watch", "R", "--json").json["run_id"] == "R"


def test_a_registry_that_the_daemon_does_not_go_by_is_refused_before_anything_is_submitted(
    command: Cli, daemon: Played, tmp_path: Path
) -> None:
    task = tmp_path / "task.json"
    task.write_text(json.dumps(TASK))
    for words in (
        ("submit", "Do it.", "--wait"),
        ("submit", "Do it."),
        ("run", "Do it."),
        ("run", "Do it.", "--dry-run"),
        ("validate", task),
        ("plan", "Do it."),
    ):
        refused = command("--registry", "no/such.yaml", *words)
        assert refused.code == 2
        assert "--registry no/such.yaml: the daemon that owns" in refused.err
        assert "uses /their/registry.yaml" in refused.err
    assert daemon.got == []
    assert command("--registry", daemon.registry, "submit", "Do it.").out == "R\n"


def test_without_the_option_the_registry_is_that_of_the_daemon(
    command: Cli, daemon: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHESTRATOR_REGISTRY", "no/such.yaml")
    task = tmp_path / "task.json"
    task.write_text(json.dumps(TASK))
    for words, path in (
        (("run", "Do it."), "/v1/runs"),
        (("run", "Do it.", "--dry-run"), "/v1/forecasts"),
        (("run", task, "--dry-run"), "/v1/forecasts"),
        (("validate", task), "/v1/forecasts"),
        (("plan", "Do it."), "/v1/plans"),
    ):
        command(*words)
        assert daemon.got.pop()[1] == path


@pytest.mark.parametrize(
    "words",
    [
        ("models", "load", "qwen/7b"),
        ("models", "pin", ".."),
        ("models", "unload", "."),
        ("models", "load", "a\nb"),
        ("models", "load", ""),
        ("restore", "../runs/R/retry"),
        ("submit", "Do it.", "--key", "schlüssel"),
        ("submit", "Do it.", "--key", ""),
        ("submit", "Do it.", "--key", "k" * 201),
        ("submit", "Do it.", "--key", " k"),
        ("submit", "Do it.", "--key", "a\r\nb: c"),
        ("--home", "~no-such-user/x", "runs"),
    ],
)
def test_words_that_no_request_can_hold_are_bad_input(command: Cli, daemon: Played, words: tuple[str, ...]) -> None:
    refused = command(*words)
    assert refused.code == 2
    assert refused.err.startswith("error: ")
    assert "Traceback" not in refused.err
    assert daemon.got == []


def test_names_and_keys_are_sent_as_they_are(command: Cli, daemon: Played) -> None:
    assert command("models", "load", "grün 7b?x#y%2F").code == 0
    assert command("restore", "20260101-000000").code == 0
    assert command("submit", "Do it.", "--key", "my key").code == 0
    assert daemon.got == [
        ("POST", "/v1/pool/gr%C3%BCn%207b%3Fx%23y%252F/load", None),
        ("POST", "/v1/backups/20260101-000000/restore", None),
        ("POST", "/v1/runs", "my key"),
    ]


def test_a_stream_that_breaks_off_goes_on_after_the_last_whole_event(tmp_path: Path) -> None:
    accepted = RunAccepted(at=1.0, run="R", mode="as-planned", request="long " * 500_000)
    finished = RunFinished(at=2.0, status="done")
    happened: list[Event] = [accepted, finished]
    events = [f"id: {n}\nevent: event\ndata: {encode_event(one)}\n\n" for n, one in enumerate(happened, 1)]
    progress = 'event: progress\ndata: {"step": "S1", "attempt": 1, "output_tokens": 3, "text_tail": "a\u2028b", '
    progress += '"tokens_per_second": 2.5, "gates": ["lint"], "nodes": ["east"]}\n\n'
    asked: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["Last-Event-ID"])
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            heartbeat = ": still here\n\n"
            text = events[1] if len(asked) > 1 else heartbeat + events[0] + heartbeat + progress + events[1][:-20]
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Write no log."""

    async def watch() -> list[Update]:
        async with RunClient(Settings(Path("registry.yaml"), tmp_path, ROOT)) as daemon:
            return [update async for update in daemon.watch("R")]

    with ThreadingUnixStreamServer(str(tmp_path / "api.sock"), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, args=(SECONDS_TO_END,))
        serving.start()
        try:
            updates = asyncio.run(watch())
        finally:
            server.shutdown()
            serving.join()
    assert updates == [
        EventUpdate(accepted, 1),
        Progress("S1", 1, 3, 2.5, "a\u2028b", gates=("lint",), nodes=("east",)),
        EventUpdate(finished, 2),
    ]
    assert asked == ["0", "1"]
