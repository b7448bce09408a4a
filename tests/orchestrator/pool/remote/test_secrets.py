"""An API key is sent to its server, and is found nowhere else."""

import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.contract import Generation, Message
from orchestrator.engine.errors import EngineError
from orchestrator.pool.pool import Pool
from orchestrator.pool.remote.client import RemoteModel
from orchestrator.run.job import Job
from orchestrator.run.orchestrator import Orchestrator
from orchestrator.task.taskir.parse import task_from
from tests.orchestrator.pool.remote.conftest import EntryOf, RemoteRegistry
from tests.orchestrator.pool.remote.server_answers import KEY, does, error, event, ok, piece
from tests.orchestrator.pool.remote.server_play import Remote

HELLO = Generation(messages=(Message("user", "Hello?"),))
ECHO = f"Incorrect API key provided: {KEY}. You sent Bearer {KEY}"
TELLING = [
    error(401, ECHO),
    error(400, ECHO, code=KEY, type=KEY),
    error(429, ECHO, headers={"Retry-After": "3600"}),
    {"status": 404, "headers": {"Content-Type": "text/html"}, "steps": [["echo"]]},
    {"status": 403, "headers": {"Content-Type": "application/json"}, "steps": [["echo"]]},
    {"status": 302, "headers": {"Location": f"http://127.0.0.1:1/?{KEY}"}, "steps": [["echo"]]},
    {"status": 200, "headers": {"Content-Type": f"text/{KEY}"}, "steps": [["echo"]]},
    does(["send", piece("a") + event(error={"message": ECHO, "code": 400})]),
    does(["send", piece("a") + event(error=ECHO)]),
    does(["send", piece("a", KEY)]),
    does(["send", f"data: {ECHO}\n\n"]),
    does(["send", f'data: {{"choices": "{KEY}"}}\n\n']),
    does(["send", piece("a")], ["reset"]),
]


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> Iterator[list[str]]:
    """Collect everything that is logged or printed by the end of the test, at any level, by any library."""
    told: list[str] = []
    with caplog.at_level(logging.DEBUG):
        yield told
    printed = capsys.readouterr()
    assert KEY not in caplog.text + printed.out + printed.err
    assert KEY not in "".join(str(vars(record)) for record in caplog.records)


@pytest.mark.parametrize("answer", TELLING, ids=range(len(TELLING)))
async def test_no_error_tells_the_key_whatever_the_server_says(
    remote: Remote, entry_of: EntryOf, logged: list[str], answer: dict[str, Any]
) -> None:
    remote.plays(answer)
    entry = entry_of(remote.url)
    model = RemoteModel(entry, entry.servers[0], chance=lambda: 0.0)
    with pytest.raises(EngineError) as caught:
        await model.generate(HELLO)
    await model.close()
    seen = remote.seen()
    assert seen[0]["headers"]["authorization"] == f"Bearer {KEY}"
    for told in (str(caught.value), repr(caught.value), str(vars(caught.value)), str(model.last_failure)):
        assert KEY not in told
    assert KEY not in "".join(traceback.format_exception(caught.value))


async def test_nothing_that_can_be_shown_holds_the_key(
    remote: Remote, remote_registry: RemoteRegistry, logged: list[str], tmp_path: Path
) -> None:
    remote.plays(ok("fine"))
    registry = remote_registry(remote.url)
    async with Pool(registry, tmp_path / "logs") as pool:
        await pool.generate("far", HELLO)
        assert KEY not in repr(pool.snapshot())
        assert KEY not in repr(registry)
    assert KEY not in repr(vars(pool))


async def test_a_run_leaves_no_key_behind(
    remote: Remote, remote_registry: RemoteRegistry, logged: list[str], tmp_path: Path
) -> None:
    steps = [
        {"id": f"S{n}", "actor": "worker", "action": "Say it.", "inputs": [], "outputs": [f"said{n}"]} for n in (1, 2)
    ]
    remote.plays(ok("It is said."), error(400, ECHO))
    task = task_from({"objective": "a test", "plan": {"steps": steps, "parallelism": {"max_concurrent_steps": 1}}})
    home = tmp_path / "home"
    async with Orchestrator.open(home, remote_registry(remote.url)) as orchestrator:
        run = await orchestrator.submit(Job(None, task, None, "as-planned"))
        updates = [repr(update) async for update in orchestrator.watch(run)]
    files = [file for file in home.rglob("*") if file.is_file()]
    kept = b"".join(file.read_bytes() for file in files)
    assert b"It is said." in kept
    assert b"HTTP 400: Incorrect API key provided: [API key]." in kept
    assert KEY.encode() not in kept
    assert KEY not in "".join(updates)
