"""The same contract, kept by llama.cpp's own server. `make test-server` builds it; otherwise LLAMA_SERVER names it."""

import asyncio
import http.client
import json
import os
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from orchestrator.engine.contract import Generation, Message
from orchestrator.engine.errors import BadGrammar
from orchestrator.pool.remote.client import RemoteModel
from orchestrator.pool.remote.errors import RemotePromptTooLong, RemoteRefused
from orchestrator.pool.remote.http import probe
from orchestrator.registry.load import PACKAGED
from tests.orchestrator.pool.remote.conftest import EntryOf
from tests.orchestrator.pool.remote.server_answers import VARIABLE

BINARY = os.environ.get("LLAMA_SERVER")
MODEL = PACKAGED.parent / "registry" / "tiny" / "small.gguf"
KEY = "only-for-this-test"
CONTEXT = 512

pytestmark = [
    pytest.mark.skipif(not BINARY, reason="LLAMA_SERVER names no llama-server binary: `make test-server` builds one"),
    pytest.mark.skipif(not MODEL.exists(), reason=f"{MODEL} is not there"),
]


@pytest.fixture(scope="module")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    assert BINARY
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["-m", str(MODEL), "--host", "127.0.0.1", "--port", str(port), "-c", str(2 * CONTEXT), "-np", "2"]
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("wb") as out:
        # --no-repack: AMX kernels that go with repacked weights crash as gcc 12 compiles them: engine.llama.loading
        command = [BINARY, *options, "-t", "1", "--jinja", "--no-repack", "--api-key", KEY]
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            while not _healthy(port):
                assert process.poll() is None, log.read_text(errors="replace")[-2000:]
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.kill()
            process.wait()


def _healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@pytest.fixture
async def model(server_url: str, entry_of: EntryOf, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RemoteModel]:
    monkeypatch.setenv(VARIABLE, KEY)
    entry = entry_of(server_url, slots=2, context=CONTEXT)
    opened = RemoteModel(entry, entry.servers[0])
    yield opened
    await opened.close()


def _asks(text: str = "Say hello.", **options: Any) -> Generation:
    return Generation(
        messages=(Message("system", "Do the task."), Message("user", text)), **{"max_tokens": 24, **options}
    )


async def test_it_streams_counts_and_stops_at_the_limit(model: RemoteModel) -> None:
    pieces: list[str] = []
    done = await model.generate(_asks(max_tokens=5, schema={"type": "array", "minItems": 50}), pieces.append)
    assert done.finish == "length"
    assert "".join(pieces) == done.text
    assert len(pieces) > 1
    assert (done.usage.output_tokens, done.usage.estimated_tokens) == (5, 0)
    assert done.usage.prompt_tokens > 5


async def test_greedy_answers_repeat_and_seeds_are_kept(model: RemoteModel) -> None:
    assert (await model.generate(_asks())).text == (await model.generate(_asks())).text
    warm = _asks(temperature=1.5, seed=7)
    assert (await model.generate(warm)).text == (await model.generate(warm)).text


async def test_a_schema_holds(model: RemoteModel) -> None:
    schema = {
        "type": "object",
        "properties": {"kind": {"enum": ["a", "b"]}, "count": {"type": "integer", "minimum": 0, "maximum": 9}},
        "required": ["kind", "count"],
        "additionalProperties": False,
    }
    done = await model.generate(_asks(schema=schema, max_tokens=64))
    assert done.finish == "stop"
    value = json.loads(done.text)
    assert value["kind"] in ("a", "b")
    assert value["count"] in range(10)


async def test_a_schema_that_it_cannot_follow_is_reported_as_that(model: RemoteModel) -> None:
    with pytest.raises(BadGrammar):
        await model.generate(_asks(schema={"type": "no such type"}))


async def test_a_prompt_that_is_too_long_is_reported_with_its_numbers(model: RemoteModel) -> None:
    with pytest.raises(RemotePromptTooLong) as caught:
        await model.generate(_asks("word " * 4 * CONTEXT))
    assert caught.value.tokens > caught.value.limit >= CONTEXT


async def test_a_deadline_and_a_cancellation_free_the_slots(model: RemoteModel) -> None:
    schema = {"type": "array", "items": {"type": "integer"}, "minItems": 400}
    endless: dict[str, Any] = {"schema": schema, "max_tokens": 400}
    done = await model.generate(_asks(deadline_seconds=0.2, **endless))
    assert done.finish in ("deadline", "length")
    begun = asyncio.Event()
    task = asyncio.create_task(model.generate(_asks(**endless), lambda _: begun.set()))
    waiting = asyncio.create_task(begun.wait())
    await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    assert not task.done()
    task.cancel()
    answers = await asyncio.gather(*(model.generate(_asks(max_tokens=4)) for _ in range(6)))
    assert all(answer.finish in ("stop", "length") for answer in answers)


async def test_a_wrong_key_is_refused(server_url: str, entry_of: EntryOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "wrong")
    entry = entry_of(server_url)
    (endpoint,) = entry.servers
    refused = RemoteModel(entry, endpoint)
    with pytest.raises(RemoteRefused, match=f"the key in {VARIABLE}"):
        await refused.generate(_asks())
    await refused.close()
    monkeypatch.setenv(VARIABLE, KEY)
    assert probe(endpoint) is None
