"""MCP servers that list their tools oddly, or send what is no message or too much: good tools stay usable."""

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from orchestrator.run.sandbox.sandbox import Sandbox
from orchestrator.run.steps.tools.mcp_messages import MAX_TOOLS
from orchestrator.run.steps.tools.servers import Listing, ToolServer
from orchestrator.task.events import FailureKind
from tests.orchestrator.run.steps.tools.server_fixture import plain, servers_of
from tests.orchestrator.run.steps.tools.test_servers import ServedSteps, called

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}


async def listed(sandbox: Sandbox, mode: str, *tools: str) -> Listing:
    """Return what the server in this mode says of its tools."""
    return await servers_of(sandbox, plain(mode)).listing([f"mcp:plain/{tool}" for tool in tools])


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("twice", "it has echo, half; further pages: its list names the page '8' twice"),
        ("empty_page", "it has echo"),
        ("empty_cursor", "it has echo"),
        ("refuses", "it has echo; further pages: the page '2' was refused: no"),
    ],
)
async def test_the_tools_of_an_odd_list_can_be_used(sandbox: Sandbox, mode: str, told: str) -> None:
    found = await listed(sandbox, mode, "echo", "missing")
    assert list(found.tools) == ["mcp:plain/echo"]
    assert found.unavailable["mcp:plain/missing"].endswith(told)


async def test_an_invalid_tool_does_not_hide_the_others(sandbox: Sandbox) -> None:
    found = await listed(sandbox, "invalid", "echo", "bare", "listed", "untyped")
    assert list(found.tools) == ["mcp:plain/echo", "mcp:plain/untyped"]
    assert found.tools["mcp:plain/echo"].parameters["required"] == ["text"], "the first tool of a name counts"
    assert found.tools["mcp:plain/untyped"].parameters == {"type": "object", "properties": {}}
    for tool in ("bare", "listed"):
        why = found.unavailable[f"mcp:plain/{tool}"]
        assert why.startswith(f"MCP server plain: its tool '{tool}' cannot be used: it has no inputSchema; accepted: ")


async def test_what_is_no_whole_character_is_replaced(tmp_path: Path, sandbox: Sandbox) -> None:
    steps = ServedSteps(tmp_path, servers_of(sandbox, plain()))
    assert await called(steps, "mcp:plain/half") == "x\ufffdz"
    assert await called(steps, "mcp:plain/bytes") == "caf\ufffd"


@pytest.mark.parametrize(
    ("tool", "told"),
    [
        ("garbled", "its answer cannot be read: "),
        ("flood", "a message has more than 6291456 bytes; accepted: at most 6291456 bytes"),
        ("lists", "lists and objects; accepted: at most 65536"),
    ],
)
async def test_a_call_whose_answer_cannot_be_read_ends_at_once(
    tmp_path: Path, sandbox: Sandbox, tool: str, told: str
) -> None:
    steps = ServedSteps(tmp_path, servers_of(sandbox, plain(seconds=3600.0)))
    found = await steps.failing([f"mcp:plain/{tool}"], arguments={})
    assert (found.kind, told in found.message) == (FailureKind.INFRASTRUCTURE, True), found.message


def answer_to(request: dict[str, Any], tools: list[dict[str, Any]], result: dict[str, Any]) -> bytes:
    """Return what a server answers that has these tools, of which each call has this result."""
    told = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    found = {"initialize": told, "tools/list": {"tools": tools}, "tools/call": result}.get(request["method"])
    rest = {"error": {"code": -32601, "message": "no such method"}} if found is None else {"result": found}
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], **rest}).encode()


@contextmanager
def over_http(
    tools: list[dict[str, Any]], result: dict[str, Any], encode: Callable[[bytes], bytes] = bytes, **headers: str
) -> Iterator[ToolServer]:
    """Serve these tools at a port while the block lasts. `encode` makes the bytes of answers to calls."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            is_call = request["method"] == "tools/call"
            body = answer_to(request, tools, result) if "id" in request else b""
            body = encode(body) if is_call else body
            self.send_response(200 if body else 202)
            sent = {"Content-Type": "application/json", **(headers if is_call else {}), "Content-Length": len(body)}
            for name, value in sent.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield ToolServer(name="s", url=f"http://127.0.0.1:{server.server_port}/mcp")
        finally:
            server.shutdown()
            thread.join()


ECHO = [{"name": "echo", "inputSchema": TEXT}]


async def test_a_small_answer_that_becomes_large_is_not_read(tmp_path: Path, sandbox: Sandbox) -> None:
    bomb = gzip.compress(b'{"jsonrpc": "2.0", "id": 1, "result": "' + b"\n" * (64 << 20))
    with over_http(ECHO, {}, lambda _: bomb, **{"Content-Encoding": "gzip"}) as server:
        steps = ServedSteps(tmp_path, servers_of(sandbox, server))
        found = await steps.failing(["mcp:s/echo"], arguments={"text": "a"})
    assert found.kind is FailureKind.INFRASTRUCTURE
    assert "a message has more than 6291456 bytes; accepted: at most 6291456 bytes" in found.message


async def test_a_compressed_answer_is_read_and_repaired(tmp_path: Path, sandbox: Sandbox) -> None:
    result = {"content": [{"type": "text", "text": "x\ud83dz"}]}
    with over_http(ECHO, result, gzip.compress, **{"Content-Encoding": "gzip"}) as server:
        steps = ServedSteps(tmp_path, servers_of(sandbox, server))
        assert await called(steps, "mcp:s/echo", text="a") == "x\ufffdz"


async def test_of_too_many_tools_the_first_are_used(sandbox: Sandbox) -> None:
    many = [{"name": f"t{number}", "inputSchema": {"type": "object"}} for number in range(20_000)]
    with over_http(many, {}) as server:
        found = await servers_of(sandbox, server).listing(["mcp:s/t0", "mcp:s/t999", "mcp:s/t1000"])
    assert list(found.tools) == ["mcp:s/t0", "mcp:s/t999"]
    why = found.unavailable["mcp:s/t1000"]
    assert f"({MAX_TOOLS} in all); further tools: only the first {MAX_TOOLS} are used" in why


async def test_a_list_that_is_too_large_to_read_is_refused(sandbox: Sandbox) -> None:
    many = [{"name": f"t{number}", "inputSchema": {"type": "object"}} for number in range(50_000)]
    with over_http(many, {}) as server:
        found = await servers_of(sandbox, server).listing(["mcp:s/t0"])
    assert "the JSON has 100003 lists and objects; accepted: at most 65536" in found.unavailable["mcp:s/t0"]


async def test_a_schema_that_is_too_wide_makes_only_its_own_tool_unusable(sandbox: Sandbox) -> None:
    wide = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(5000)}}
    with over_http([*ECHO, {"name": "wide", "inputSchema": wide}], {}) as server:
        found = await servers_of(sandbox, server).listing(["mcp:s/echo", "mcp:s/wide"])
    assert list(found.tools) == ["mcp:s/echo"]
    assert "5000 optional properties in one object; accepted: at most 1000" in found.unavailable["mcp:s/wide"]


@pytest.mark.parametrize("structured", [{"n": "many"}, None])
async def test_a_result_keeps_to_the_output_schema_of_its_tool(
    tmp_path: Path, sandbox: Sandbox, structured: dict[str, Any] | None
) -> None:
    output = {"type": "object", "properties": {"n": {"type": "integer"}}}
    result = {"content": [], **({} if structured is None else {"structuredContent": structured})}
    with over_http([{**ECHO[0], "outputSchema": output}], result) as server:
        steps = ServedSteps(tmp_path, servers_of(sandbox, server))
        found = await steps.failing(["mcp:s/echo"], arguments={"text": "a"})
    assert (found.kind, "output schema" in found.message) == (FailureKind.INFRASTRUCTURE, True), found.message
