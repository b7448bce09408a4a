"""Requests that are too many, too large, too slow or for another host get an `ErrorBody`, in both parts of the API."""

import fcntl
import json
import socket
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import httpx2
import openai
import pytest
from openai import OpenAI

from tests.orchestrator.api.daemon_process import (
    Running,
    active_requests,
    begun_and_left,
    finished,
    lasting,
    running_daemon,
    submitted,
)

MOST_REQUESTS = 6
BODY_BYTES = 65_536
CHAT: dict[str, Any] = {"model": "worker", "messages": [{"role": "user", "content": "Count the stars."}]}
LIST = {"type": "array", "items": {"type": "integer"}, "minItems": 900}
LONG_CHAT = {
    **CHAT,
    "n": 8,
    "max_tokens": 1500,
    "response_format": {"type": "json_schema", "json_schema": {"name": "long", "schema": LIST}},
}
"""Asks for long answers, of which the buffers of a connection hold only a part while the client does not read."""
PLACES = ["/v1/runs", "/v1/chat/completions", "/v1/responses", "/v1/embeddings"]


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A daemon with low limits: one run at a time and one in the queue, one generation, few requests."""
    settings = {
        "RUNS_MAX_RUNNING": "1",
        "RUNS_RESERVED": "0",
        "RUNS_MAX_QUEUED": "1",
        "SERVER_MAX_GENERATIONS": "1",
        "SERVER_MAX_REQUESTS": str(MOST_REQUESTS),
        "SERVER_MAX_BODY": str(BODY_BYTES),
        "SERVER_BODY_SECONDS": "2",
        "SERVER_REJOIN_SECONDS": "0",
        "SERVER_HOSTS": "Models.Example",
        "SERVER_ORIGINS": "https://page.example",
        "SERVER_ALIASES": "gpt-4o-mini=worker, claude-*=auto, text-embedding-3-small=embedder, lost=nobody",
    }
    home = tmp_path_factory.mktemp("narrow") / "home"
    with running_daemon(home, **{f"ORCHESTRATOR_{name}": text for name, text in settings.items()}) as running:
        yield running


@pytest.fixture
def tcp(narrow: Running) -> Iterator[httpx2.Client]:
    """A client on the port, with the token."""
    with narrow.tcp(Authorization=f"Bearer {narrow.token}") as client:
        yield client


@pytest.fixture
def ai(narrow: Running) -> Iterator[OpenAI]:
    """The official client, without retries."""
    with OpenAI(base_url=f"http://127.0.0.1:{narrow.port}/v1", api_key=narrow.token, max_retries=0) as client:
        yield client


def check_busy(answer: Any) -> None:
    """Check that an answer asks the client to retry later."""
    assert answer.status_code == 429
    assert int(answer.headers["Retry-After"]) >= 1
    check_shape(answer, "rate_limit_error", "busy")


def check_shape(answer: Any, kind: str, code: str) -> None:
    """Check that the body is an `ErrorBody`."""
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code", "problems"}
    assert (error["type"], error["code"]) == (kind, code)
    assert error["message"]


def test_a_full_queue_asks_clients_to_retry_later(tcp: httpx2.Client, ai: OpenAI) -> None:
    runs = [submitted(tcp, lasting()) for _ in range(2)]
    check_busy(tcp.post("/v1/runs", json=lasting()))
    for ask in (
        lambda: ai.chat.completions.create(**CHAT | {"model": "orchestrate"}),
        lambda: ai.chat.completions.create(**CHAT | {"model": "orchestrate"}, stream=True),
        lambda: ai.responses.create(model="orchestrate", input="Count the stars."),
        lambda: ai.responses.create(model="orchestrate", input="Count the stars.", stream=True),
    ):
        with pytest.raises(openai.RateLimitError) as refused:
            ask()
        check_busy(refused.value.response)
    for run in reversed(runs):
        tcp.post(f"/v1/runs/{run}/cancel")
        assert finished(tcp, run)["status"] == "cancelled"
    assert tcp.post(f"/v1/runs/{submitted(tcp, lasting())}/cancel").status_code == 202, (
        "the cancelled run has left the queue"
    )


def test_a_run_whose_client_does_not_come_back_is_cancelled(narrow: Running, tcp: httpx2.Client) -> None:
    text = "Write a Python function that counts the stars."
    body = {"model": "orchestrate", "messages": [{"role": "user", "content": text}]}
    first = submitted(tcp, lasting())  # the run waits behind this one, so it has not ended when its client goes
    run = begun_and_left(narrow, json.dumps(body).encode(), text)
    assert finished(tcp, run)["status"] == "cancelled"
    tcp.post(f"/v1/runs/{first}/cancel")
    assert finished(tcp, first)["status"] == "cancelled"


def test_generations_are_limited_and_the_client_retries_by_itself(ai: OpenAI) -> None:
    stream = ai.chat.completions.create(**LONG_CHAT, stream=True)
    next(iter(stream))
    for ask in (
        lambda: ai.chat.completions.create(**CHAT),
        lambda: ai.chat.completions.create(**CHAT, stream=True),
        lambda: ai.responses.create(model="worker", input="Count the stars."),
        lambda: ai.embeddings.create(model="lexical", input="Count the stars."),
    ):
        with pytest.raises(openai.RateLimitError) as refused:
            ask()
        check_busy(refused.value.response)
    stream.close()
    assert ai.with_options(max_retries=8).chat.completions.create(**CHAT, max_tokens=4).choices


def test_requests_are_limited_for_each_listener(narrow: Running, tcp: httpx2.Client, ai: OpenAI) -> None:
    with narrow.client() as local, ExitStack() as streams:
        run = submitted(local, lasting())
        for _ in range(MOST_REQUESTS):
            client = streams.enter_context(narrow.tcp(Authorization=f"Bearer {narrow.token}"))
            answer = streams.enter_context(client.stream("GET", f"/v1/runs/{run}/events"))
            assert answer.status_code == 200
        check_busy(tcp.get("/v1/runs"))
        with pytest.raises(openai.RateLimitError) as refused:
            ai.models.list()
        check_busy(refused.value.response)
        assert local.get("/v1/runs").is_success, "each listener counts its own requests"
        local.post(f"/v1/runs/{run}/cancel")
        assert finished(local, run)["status"] == "cancelled"
    assert ai.with_options(max_retries=8).models.list().data


def test_aliases_stand_for_other_names(tcp: httpx2.Client) -> None:
    listed = {one["id"]: one for one in tcp.get("/v1/models").json()["data"]}
    assert listed["gpt-4o-mini"]["context_length"] == listed["worker"]["context_length"]
    assert listed["worker"]["aliases"] == ["gpt-4o-mini"]
    abilities = {name: listed[name]["abilities"] for name in ("gpt-4o-mini", "orchestrate", "lexical", "embedder")}
    assert abilities == {
        "gpt-4o-mini": ["chat", "completion"],
        "orchestrate": ["chat"],
        "lexical": ["embeddings", "rerank"],
        "embedder": ["embeddings", "rerank"],
    }
    assert "claude-*" not in listed
    assert tcp.get("/v1/models/claude-opus").json()["aliases"] == []
    chat = {**CHAT, "max_tokens": 4}
    answer = tcp.post("/v1/chat/completions", json={**chat, "model": "gpt-4o-mini"}).raise_for_status().json()
    assert answer["model"] == "gpt-4o-mini"
    told = {"messages": CHAT["messages"], "max_tokens": 4}
    assert tcp.post("/v1/messages", json={**told, "model": "claude-opus"}).is_success
    assert tcp.post("/v1/embeddings", json={"model": "text-embedding-3-small", "input": "a"}).is_success
    refused = tcp.post("/v1/chat/completions", json={**chat, "model": "lost"})
    assert refused.status_code == 404
    assert "there is no model 'nobody'" in refused.json()["error"]["message"]


@pytest.mark.parametrize("place", PLACES)
def test_only_configured_hosts_and_origins_are_accepted(tcp: httpx2.Client, place: str) -> None:
    for headers, status, kind, code in [
        ({"Host": "evil.example"}, 421, "invalid_request_error", "wrong_host"),
        ({"Host": "models.example.evil.example"}, 421, "invalid_request_error", "wrong_host"),
        ({"Origin": "https://evil.example"}, 403, "authentication_error", "wrong_origin"),
        ({"Origin": "null"}, 403, "authentication_error", "wrong_origin"),
        ({"Authorization": "Bearer wrong"}, 401, "authentication_error", "token"),
    ]:
        answer = tcp.post(place, json={}, headers=headers)
        assert answer.status_code == status
        check_shape(answer, kind, code)
    let_in = tcp.post(place, json={}, headers={"Host": "models.example:80", "Origin": "https://page.example"})
    assert let_in.status_code == 400
    assert let_in.headers["Access-Control-Allow-Origin"] == "https://page.example"


def test_a_browser_may_ask_without_the_token_what_an_accepted_page_may_do(tcp: httpx2.Client) -> None:
    wanted = "authorization, x-stainless-os, x-stainless-lang"
    asks = {"Authorization": "", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": wanted}
    answer = tcp.options("/v1/runs", headers={**asks, "Origin": "https://page.example"})
    assert answer.is_success
    assert answer.headers["Access-Control-Allow-Headers"] == wanted
    assert answer.headers["Access-Control-Allow-Methods"] == "GET, POST, DELETE"
    assert answer.headers["Access-Control-Allow-Origin"] == "https://page.example"
    assert tcp.options("/v1/runs", headers={**asks, "Origin": "https://evil.example"}).status_code == 403
    assert tcp.options("/v1/runs", headers=asks).status_code == 401


@pytest.mark.parametrize("place", PLACES)
def test_a_body_that_is_too_large_is_refused(tcp: httpx2.Client, place: str) -> None:
    answer = tcp.post(place, content=b"x" * (BODY_BYTES + 1))
    assert answer.status_code == 413
    check_shape(answer, "invalid_request_error", "too_large")
    at_most = tcp.post(place, content=b'"' + b"x" * (BODY_BYTES - 2) + b'"')
    assert at_most.status_code == 400
    pieces = (b"x" * 1024 for _ in range(BODY_BYTES // 1024 + 1))
    unannounced = tcp.post(place, content=pieces)
    assert unannounced.status_code == 413
    check_shape(unannounced, "invalid_request_error", "request_entity_too_large")


def connection(narrow: Running, text: str) -> socket.socket:
    """Open a connection to the port, and send `text`."""
    caller = socket.create_connection(("127.0.0.1", narrow.port), timeout=100)
    caller.sendall(text.encode())
    return caller


def read_all(caller: socket.socket) -> bytes:
    """Return all that comes until the daemon closes the connection."""
    return b"".join(iter(lambda: caller.recv(4096), b""))


def answered(caller: socket.socket) -> httpx2.Response:
    """Return the last answer on a connection, which the daemon then closes."""
    head, _, body = read_all(caller).partition(b"\r\n\r\n")
    first, *fields = head.decode().split("\r\n")
    headers = dict(field.split(": ", 1) for field in fields)
    return httpx2.Response(int(first.split()[1]), headers=headers, content=body)


def test_a_body_has_to_come_in_time(narrow: Running) -> None:
    fields = f"Host: localhost\r\nAuthorization: Bearer {narrow.token}\r\nContent-Type: application/json\r\n"
    with ExitStack() as stack:
        begun = [f'POST {place} HTTP/1.1\r\n{fields}Content-Length: 99\r\n\r\n{{"inp' for place in PLACES]
        for caller in [stack.enter_context(connection(narrow, text)) for text in begun]:
            answer = answered(caller)
            assert answer.status_code == 408
            check_shape(answer, "invalid_request_error", "request_timeout")


def test_connections_without_a_request_are_closed(narrow: Running) -> None:
    health = "GET /health/live HTTP/1.1\r\nHost: localhost"
    texts = ["", health, f"{health}\r\n\r\n{health}"]
    with ExitStack() as stack:
        callers = [stack.enter_context(connection(narrow, text)) for text in texts]
        dripping = stack.enter_context(connection(narrow, f"{health}\r\nX: "))
        dripping.settimeout(0.2)
        drips = 0
        while (came := drip(dripping)) is None:
            drips += 1
        assert came == b""
        assert drips > 0
        silent, halted, second = map(read_all, callers)
        assert silent == halted == b""
        assert second.count(b"HTTP/1.1 200 OK") == 1, "the head of its second request never came"


def test_a_client_that_stops_reading_is_disconnected(narrow: Running, ai: OpenAI) -> None:
    body = json.dumps({**LONG_CHAT, "stream": True})
    with socket.socket(socket.AF_UNIX) as caller:  # its buffers do not grow, as those of TCP do
        caller.settimeout(100)
        caller.connect(str(narrow.home / "api.sock"))
        answers = fill(caller)
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        caller.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        end = time.monotonic() + 60
        while not active_requests(narrow):
            assert time.monotonic() < end
            time.sleep(0.01)
        with pytest.raises(openai.RateLimitError):
            ai.chat.completions.create(**CHAT)
        assert ai.with_options(max_retries=30).chat.completions.create(**CHAT, max_tokens=4).choices
        with suppress(ConnectionError):
            got = read_all(caller)
            assert got.count(b"HTTP/1.1 200 OK") <= answers + 1
            assert b"[DONE]" not in got


def fill(caller: socket.socket) -> int:
    """Send requests with small answers and read none, until the buffers are nearly full; return how many were sent.

    What the kernel holds is seen here. What the daemon holds then is what asyncio's transports do at most.
    """
    ask = b"GET /v1/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    caller.sendall(ask)
    size, asked, come = settled(caller), 1, True
    while come:
        wanted = readable(caller) + 49 * size
        caller.sendall(ask * 50)
        come = settled(caller, wanted) >= wanted
        asked += 50
    more = (48 << 10) // size - 100  # some of the last fifty are with the daemon already
    caller.sendall(ask * more)
    return asked + more


def settled(caller: socket.socket, wanted: int = sys.maxsize) -> int:
    """Return how many bytes have arrived, as soon as they are as many as are `wanted` or no more come for a second."""
    held, since = 0, time.monotonic()
    while (now := readable(caller)) < wanted and (not held or time.monotonic() < since + 1):
        if now > held:
            held, since = now, time.monotonic()
        time.sleep(0.01)
    return now


def readable(caller: socket.socket) -> int:
    """Return how many bytes have arrived and were not read."""
    return int.from_bytes(fcntl.ioctl(caller, termios.FIONREAD, b"\0" * 4), sys.byteorder)


def drip(caller: socket.socket) -> bytes | None:
    """Return what came within a moment, b"" for the end; if nothing did, send one more byte."""
    try:
        return caller.recv(4096)
    except ConnectionError:
        return b""
    except TimeoutError:
        with suppress(ConnectionError):
            caller.sendall(b"x")
        return None


@pytest.mark.parametrize("text", ["NONSENSE", "GET / HTTP/1.1", "GET /\x01 HTTP/1.1\r\nHost: localhost"])
def test_data_that_is_not_http_gets_an_error_body(narrow: Running, text: str) -> None:
    with connection(narrow, f"{text}\r\n\r\n") as caller:
        answer = answered(caller)
    assert answer.status_code == 400
    assert answer.headers["Connection"].lower() == "close"
    check_shape(answer, "invalid_request_error", "bad_request")
