"""Vacuum removes what is kept no longer, a state folder has one daemon, and that shuts down in order and in time."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from orchestrator.run.journal.home import Home
from tests.orchestrator.api.daemon_process import ROOT, Running, executed, running_daemon, submitted, summary
from tests.orchestrator.api.forked_daemons import fork_daemon

LIST: dict[str, Any] = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A daemon of these tests alone, which count what is in its state folder."""
    with running_daemon(tmp_path_factory.mktemp("daemon") / "home") as running:
        yield running


def chat(items: int) -> dict[str, Any]:
    """Return the body of a streamed chat, whose answer is a list of `items` numbers."""
    schema = {**LIST, "minItems": items, "maxItems": items}
    return {
        "model": "worker",
        "messages": [{"role": "user", "content": "Write numbers."}],
        "stream": True,
        "max_tokens": 3 * items,
        "response_format": {"type": "json_schema", "json_schema": {"name": "list", "schema": schema}},
    }


def objects(home: Path) -> set[str]:
    """Return the digests of all objects of a state folder."""
    return {path.parent.name + path.name for path in Home(home).objects.glob("??/*")}


def test_vacuum_removes_the_objects_of_deleted_runs(client: httpx2.Client, daemon: Running) -> None:
    prompts = objects(daemon.home)
    first, second = executed(client, summary("a")), executed(client, summary("b"))
    (old,), (new,) = first["artifacts"].values(), second["artifacts"].values()
    assert old != new
    client.delete(f"/v1/runs/{first['run_id']}").raise_for_status()
    foreseen = client.post("/v1/vacuum", json={"dry_run": True}).json()
    assert (foreseen["dry_run"], foreseen["runs"], foreseen["objects"]) == (True, [], 1)
    assert {old, new} <= objects(daemon.home)
    done = client.post("/v1/vacuum", json={}).json()
    assert (done["objects"], done["object_bytes"]) == (1, foreseen["object_bytes"])
    assert objects(daemon.home) == {new} | prompts
    assert client.get(f"/v1/runs/{second['run_id']}/artifacts/summary.txt").status_code == 200


def test_vacuum_keeps_only_the_newest_runs_if_asked_to(client: httpx2.Client) -> None:
    runs = [executed(client, summary())["run_id"] for _ in range(3)]
    waiting = submitted(client, summary() | {"priority": "batch"})
    done = client.post("/v1/vacuum", json={"runs": 1}).json()
    assert set(runs[:2]) <= set(done["runs"])
    assert waiting not in done["runs"]
    assert [client.get(f"/v1/runs/{run}").status_code for run in runs[:2]] == [404, 404]
    assert client.post("/v1/vacuum", json={"years": 1}).status_code == 400
    assert client.post("/v1/vacuum", json={"days": -1}).status_code == 400


def test_a_second_daemon_names_the_holder_of_the_lock(daemon: Running, tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ORCHESTRATOR_", "XDG_"))}
    environment = {**kept, "HOME": str(tmp_path), "ORCHESTRATOR_HOME": str(daemon.home), "PYTHONPATH": str(ROOT)}
    with open(tmp_path / "log", "wb") as log:
        second = fork_daemon(environment, log)
    assert second.wait(100) == 1
    assert str(daemon.process.pid) in (tmp_path / "log").read_text()


def test_a_chat_in_progress_is_answered_before_the_daemon_ends(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "home", ORCHESTRATOR_SERVER_DRAIN_SECONDS="300") as daemon:
        with daemon.client() as client, client.stream("POST", "/v1/chat/completions", json=chat(300)) as answer:
            lines = answer.iter_lines()
            lines_read = [next(lines)]
            daemon.process.send_signal(signal.SIGTERM)
            assert status_when_it_drains(daemon) == 503
            lines_read += lines
        assert "data: [DONE]" in lines_read
        pieces = [json.loads(line[6:]) for line in lines_read if line.startswith("data: {")]
        text = "".join(piece["choices"][0]["delta"].get("content") or "" for piece in pieces if piece["choices"])
        assert text.count(",") > 50
        assert daemon.process.wait(120) == 0


def test_a_chat_that_takes_too_long_does_not_keep_the_daemon_from_ending(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "home", ORCHESTRATOR_SERVER_DRAIN_SECONDS="0") as daemon:
        lines_read: list[str] = []
        with daemon.client() as client, client.stream("POST", "/v1/chat/completions", json=chat(900)) as answer:
            lines = answer.iter_lines()
            lines_read.append(next(lines))
            daemon.process.send_signal(signal.SIGTERM)
            with suppress(httpx2.TransportError):
                lines_read += lines
        assert "data: [DONE]" not in lines_read
        assert daemon.process.wait(120) == 0


def status_when_it_drains(daemon: Running) -> int:
    """Send short chats until one is refused, and return the status of its answer."""
    with daemon.client() as client:
        while True:
            status = client.post("/v1/chat/completions", json=chat(2) | {"stream": False}).status_code
            if status != 200:
                return status
