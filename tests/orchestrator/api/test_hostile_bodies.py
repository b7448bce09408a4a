"""Requests that are made to keep the daemon busy are refused at once, and say what would be accepted.

What counts is the time for which the thread of the event loop has computed, which a busy machine does not change.
"""

import gzip
import json
from pathlib import Path

import httpx2
import pytest

from benchmarks.daemon.hostile import HEADERS, hostile_requests, message
from tests.orchestrator.api.daemon_process import Running

MOST_SECONDS = 1.0
"""CPU seconds of the event loop that one of these requests may take. Each takes a quarter of it at most, and took more
than a second, up to a minute, without the limits."""


HOSTILE = hostile_requests()


def loop_seconds(daemon: Running) -> float:
    """Return for how many seconds the daemon's main thread has computed so far."""
    return int(Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/schedstat").read_text().split()[0]) / 1e9


@pytest.mark.parametrize("name", HOSTILE)
def test_a_request_that_asks_too_much_is_refused_at_once(daemon: Running, client: httpx2.Client, name: str) -> None:
    request = HOSTILE[name]
    content = request.content
    before = loop_seconds(daemon)
    answer = client.post(request.path, content=content, headers=HEADERS)
    seconds = loop_seconds(daemon) - before
    assert (answer.status_code, request.told in answer.text) == (request.status, True), answer.text[:1000]
    assert seconds < MOST_SECONDS


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/runs", "/mcp", "/completion"])
def test_a_body_that_is_compressed_or_not_utf8_is_told_so(client: httpx2.Client, path: str) -> None:
    plain = json.dumps(message(content="café"), ensure_ascii=False)
    packed = client.post(path, content=gzip.compress(plain.encode()), headers={**HEADERS, "Content-Encoding": "gzip"})
    assert packed.status_code == 415
    assert "Content-Encoding: is gzip; accepted: a body without compression" in packed.text
    assert packed.headers["Accept-Encoding"] == "identity"
    latin = client.post(path, content=plain.encode("latin-1"), headers=HEADERS)
    assert latin.status_code == 400
    assert "the body is not UTF-8: byte 0xe9 at offset" in latin.text
    assert "accepted: JSON in UTF-8" in latin.text
    unpacked = client.post(path, content=plain.encode(), headers={**HEADERS, "Content-Encoding": "identity"})
    assert unpacked.status_code not in (413, 415)
    assert "UTF-8" not in unpacked.text


def test_an_uploaded_file_may_have_any_bytes(client: httpx2.Client) -> None:
    files = {"file": ("a.txt", "café [[[[".encode("latin-1") * 70_000)}
    answer = client.post("/v1/files", files=files, data={"purpose": "user_data"})
    assert answer.is_success, answer.text
    client.delete(f"/v1/files/{answer.json()['id']}").raise_for_status()  # the tests share the daemon
