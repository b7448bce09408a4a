"""Clients, the pool's table and reports name the cause of an engine's death in one sentence."""

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.orchestrator.api.daemon_process import Running, finished, lasting, running_daemon, submitted
from tests.orchestrator.cli.cli_command import make_command

NUMBERS: dict[str, Any] = {"type": "array", "items": {"type": "integer"}, "minItems": 900}
CHAT: dict[str, Any] = {
    "model": "worker",
    "messages": [{"role": "user", "content": "Write numbers."}],
    "max_tokens": 1500,
    "response_format": {"type": "json_schema", "json_schema": {"name": "numbers", "schema": NUMBERS}},
}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A daemon of these tests alone, which kill its engines."""
    with running_daemon(tmp_path_factory.mktemp("daemon") / "home") as running:
        yield running


def kill_what_generates(client: httpx2.Client, number: signal.Signals) -> str:
    """Send a signal to the first engine that generates, and return its model's id."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for model in client.get("/v1/pool").json()["models"]:
            if model["active"]:
                os.kill(model["pid"], number)
                return str(model["model"])
    raise AssertionError("nothing generates")


def loaded(client: httpx2.Client, model: str) -> int:
    """Load a model and return the process of its engine, which can then be killed at once."""
    assert client.post("/v1/chat/completions", json=CHAT | {"model": model, "max_tokens": 1}).status_code == 200
    shown = next(one for one in client.get("/v1/pool").json()["models"] if one["model"] == model)
    return int(shown["pid"])


def sentence(daemon: Running, model: str, cause: str) -> str:
    """Return the sentence about the death of a model's engine."""
    log = daemon.home / "logs" / f"{model}.log"
    return f"the engine process of {model} was killed by {cause}; its log is in {log}"


def deaths(daemon: Running) -> list[dict[str, Any]]:
    """Return the daemon's log records of engines that died."""
    lines = (daemon.home / "logs" / "daemon.log").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["event"] == "an engine died"]


@pytest.mark.parametrize("stream", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_client_gets_one_sentence_on_how_its_engine_died(
    daemon: Running, client: httpx2.Client, *, stream: bool
) -> None:
    before = len(deaths(daemon))
    with ThreadPoolExecutor() as pool, daemon.client() as chatting:
        asked = pool.submit(chatting.post, "/v1/chat/completions", json=CHAT | {"stream": stream})
        model = kill_what_generates(client, signal.SIGSEGV)
        answer = asked.result()
    if stream and answer.status_code == 200:  # the stream had started
        (error,) = re.findall(r"^data: (\{\"error\".*)$", answer.text, re.MULTILINE)
        body = json.loads(error)
    else:
        assert answer.status_code == 502
        body = answer.json()
    expected = sentence(daemon, model, "SIGSEGV")
    assert (body["error"]["message"], body["error"]["code"]) == (expected, "engine_died")

    shown = next(one for one in client.get("/v1/pool").json()["models"] if one["model"] == model)
    assert shown["reason"] == expected
    table = make_command(daemon.home)("pool", COLUMNS="1000")
    row = next(line for line in table.out.splitlines() if line.startswith(model))
    assert row.rstrip().endswith(expected)

    (logged,) = deaths(daemon)[before:]
    assert logged["reason"] == expected
    assert "llama_" in logged["engine_log"]
    assert len(logged["engine_log"].splitlines()) > 3


LONG: dict[str, dict[str, Any]] = {
    "/v1/responses": {"model": "tiny-medium", "input": "Write.", "max_output_tokens": 1500},
    "/v1/messages": {"model": "tiny-small", "messages": CHAT["messages"], "max_tokens": 1500},
    "/completion": {"model": "tiny-medium", "prompt": "1 2 3", "n_predict": 1500},
}
"""They ask other models than the tests above: one whose engine dies too often is not loaded again for a while."""
FORMATS: dict[str, dict[str, Any]] = {
    "/v1/responses": {"text": {"format": {"type": "json_schema", "name": "n", "schema": NUMBERS}}},
    "/v1/messages": {"output_config": {"format": {"type": "json_schema", "schema": NUMBERS}}},
    "/completion": {"json_schema": NUMBERS},
}


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", "/completion"])
def test_a_stream_that_fails_ends_with_an_error_in_the_form_of_its_api(
    daemon: Running, client: httpx2.Client, path: str
) -> None:
    body = {"stream": True, **LONG[path], **FORMATS[path]}
    engine = loaded(client, body["model"])
    with client.stream("POST", path, json=body) as answer:
        assert answer.status_code == 200
        lines = answer.iter_lines()
        next(line for line in lines if "delta" in line or "content" in line)
        os.kill(engine, signal.SIGKILL)
        last = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")][-1]
    expected = sentence(daemon, body["model"], "SIGKILL: the system may have run out of memory")
    match path:
        case "/v1/responses":
            assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
            assert last["response"]["error"]["message"] == expected
        case "/v1/messages":
            assert last == {"type": "error", "error": {"type": "api_error", "message": expected}}
        case _:
            assert last["error"]["message"] == expected


def test_a_report_has_one_sentence_on_how_an_engine_died(daemon: Running, client: httpx2.Client) -> None:
    body = lasting()
    del body["task"]["plan"]["steps"][1:]
    run = submitted(client, body)
    model = kill_what_generates(client, signal.SIGKILL)
    messages: list[str] = []
    while not any(messages):  # which is what the next attempt starts after
        body = client.get(f"/v1/runs/{run}").json()
        messages = [attempt["message"] for attempt in body["steps"][0]["attempts"]]
    client.post(f"/v1/runs/{run}/cancel").raise_for_status()
    finished(client, run)
    expected = sentence(daemon, model, "SIGKILL: the system may have run out of memory")
    assert messages[0] == expected
    assert "llama_" not in json.dumps(body)


def test_a_chat_with_a_model_that_keeps_dying_is_told_when_to_try_again(daemon: Running, client: httpx2.Client) -> None:
    chat = CHAT | {"model": "tiny-small"}
    with ThreadPoolExecutor() as pool, daemon.client() as chatting:
        answer = chatting.get("/health/live")
        while answer.status_code != 503:
            asked = pool.submit(chatting.post, "/v1/chat/completions", json=chat)
            kill_unless_answered(client, asked)
            answer = asked.result()
            assert answer.status_code in (200, 502, 503), answer.text  # 200: it was answered before
    assert 30 <= int(answer.headers["Retry-After"]) <= 60
    error = answer.json()["error"]
    assert error["code"] == "model_broken"
    assert "model tiny-small is broken: its engine failed 3 times within 60 s; next try in" in error["message"]
    shown = next(one for one in client.get("/v1/pool").json()["models"] if one["model"] == "tiny-small")
    assert shown["state"] == "broken"
    assert "next try in" in shown["reason"]


def kill_unless_answered(client: httpx2.Client, asked: Future[httpx2.Response]) -> None:
    """Kill the engine that generates, if the request is not answered before."""
    while not asked.done():
        for model in client.get("/v1/pool").json()["models"]:
            if model["active"]:
                os.kill(model["pid"], signal.SIGKILL)
                return
