"""Requests that are made to keep the daemon busy are refused at once, and say what would be accepted.

What counts is the time for which the thread of the event loop has computed, which a busy machine does not change.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.orchestrator.api.daemon_process import Running

MOST_SECONDS = 1.0
"""CPU seconds of the event loop that one of these requests may take. Each takes a quarter of it at most, and took more
than a second, up to a minute, without the limits."""
MCP = {"Accept": "application/json, text/event-stream"}


def chat(**more: Any) -> dict[str, Any]:
    """Return the body of a chat."""
    return {"model": "worker", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi."}], **more}


def wide(properties: int) -> dict[str, Any]:
    """Return a JSON Schema of an object with so many properties."""
    return {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(properties)}}


def answer_as(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the body of a chat whose answer has to match a schema."""
    return chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})


def message(**more: Any) -> dict[str, Any]:
    """Return the body of a chat with one message."""
    return chat(messages=[{"role": "user", **more}])


PATTERNS = {"type": "object", "properties": {f"p{n}": {"type": "string", "pattern": f"^a{n}$"} for n in range(3000)}}
HOSTILE: dict[str, tuple[str, Any, int, str]] = {
    "prompts": ("/v1/completions", {"model": "worker", "prompt": ["a"] * 10_000}, 400, "has 10000 prompts; accepted: at most 64"),
    "native prompts": ("/completion", {"prompt": ["a"] * 10_000}, 400, "has 10000 prompts; accepted: at most 64"),
    "texts among tokens": ("/v1/completions", {"model": "worker", "prompt": [1, "a"] * 30_000}, 413, "at most 1024"),
    "biases": ("/v1/chat/completions", chat(logit_bias={str(n): 1 for n in range(500_000)}), 400, "object of 1024 or fewer"),
    "properties": ("/v1/chat/completions", answer_as(wide(5000)), 400, "5000 optional properties in one object; accepted: at most 1000"),
    "alternatives": ("/v1/chat/completions", answer_as({"anyOf": [wide(n % 7 + 1) | {"title": str(n)} for n in range(4000)]}), 400, "accepted: at most 1000"),
    "patterns": ("/v1/chat/completions", answer_as(PATTERNS), 400, "3000 different patterns; accepted: at most 200"),
    "invalid parts": ("/v1/chat/completions", message(content=[1] * 1_000_000), 413, "at most 524288"),
    "parts": ("/v1/chat/completions", message(content=[{"type": "text", "text": ""}] * 60_000), 400, "list of 4096 or fewer"),
    "calls": ("/v1/chat/completions", message(tool_calls=[{"function": {"name": "f"}}] * 30_000), 400, "list of 4096 or fewer"),
    "blocks": ("/v1/messages", {**chat(), "messages": [{"role": "user", "content": [{"type": "text"}] * 60_000}]}, 400, "list of 4096 or fewer"),
    "input": ("/v1/responses", {"model": "worker", "input": [{"role": "user", "content": "a"}] * 60_000}, 400, "list of 4096 or fewer"),
    "metadata": ("/v1/responses", {"model": "worker", "input": "a", "metadata": {str(n): "a" for n in range(100_000)}}, 400, "object of 64 or fewer"),
    "variables": ("/v1/chat/completions", chat(chat_template_kwargs={f"v{n}": 1 for n in range(100_000)}), 400, "object of 16 or fewer"),
    "steps": ("/v1/runs", {"task": {"objective": "a", "plan": {"steps": [{"id": f"S{n}", "outputs": []} for n in range(40_000)]}}}, 413, "at most 65536"),
    "lists": ("/v1/chat/completions", chat(unknown=[[]] * 2_000_000), 413, "lists and objects; accepted: at most 65536"),
    "depth": ("/v1/chat/completions", b'{"a":' * 1000, 413, "nested more than 128 levels deep; accepted: at most 128"),
    "embedded": ("/v1/embeddings", {"model": "lexical", "input": [[1]] * 60_000}, 400, "at most 2048"),
    "mcp": ("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": [{"a": 1}] * 300_000}}, 413, "lists and objects; accepted: at most 65536"),
}  # fmt: skip


def loop_seconds(daemon: Running) -> float:
    """Return for how many seconds the daemon's main thread has computed so far."""
    return int(Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/schedstat").read_text().split()[0]) / 1e9


@pytest.mark.parametrize("name", HOSTILE)
def test_a_request_that_asks_too_much_is_refused_at_once(daemon: Running, client: httpx2.Client, name: str) -> None:
    path, body, status, told = HOSTILE[name]
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    before = loop_seconds(daemon)
    answer = client.post(path, content=content, headers={"Content-Type": "application/json", **MCP})
    seconds = loop_seconds(daemon) - before
    assert (answer.status_code, told in answer.text) == (status, True), answer.text[:1000]
    assert seconds < MOST_SECONDS


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/runs", "/mcp", "/completion"])
def test_a_body_that_is_compressed_or_not_utf8_is_told_so(client: httpx2.Client, path: str) -> None:
    plain = json.dumps(message(content="café"), ensure_ascii=False)
    json_type = {"Content-Type": "application/json", **MCP}
    packed = client.post(path, content=gzip.compress(plain.encode()), headers={**json_type, "Content-Encoding": "gzip"})
    assert packed.status_code == 415
    assert "Content-Encoding: is gzip; accepted: a body without compression" in packed.text
    assert packed.headers["Accept-Encoding"] == "identity"
    latin = client.post(path, content=plain.encode("latin-1"), headers=json_type)
    assert latin.status_code == 400
    assert "the body is not UTF-8: byte 0xe9 at offset" in latin.text
    assert "accepted: JSON in UTF-8" in latin.text
    unpacked = client.post(path, content=plain.encode(), headers={**json_type, "Content-Encoding": "identity"})
    assert unpacked.status_code not in (413, 415)
    assert "UTF-8" not in unpacked.text


def test_an_uploaded_file_may_have_any_bytes(client: httpx2.Client) -> None:
    files = {"file": ("a.txt", "café [[[[".encode("latin-1") * 70_000)}
    answer = client.post("/v1/files", files=files, data={"purpose": "user_data"})
    assert answer.status_code in (200, 201, 400)
    assert "UTF-8: byte" not in answer.text
    assert "lists and objects" not in answer.text
