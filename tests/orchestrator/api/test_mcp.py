"""The daemon as an MCP server: the SDK's client against the real one, over HTTP, its socket and stdio."""

import importlib
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from orchestrator.run.journal.home import Home
from tests.orchestrator.api.daemon_process import ROOT, Running, lasting, summary

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult

NEWEST = "2026-07-28"
HANDSHAKE = "legacy"
"""The SDK's name for the revisions that begin with `initialize`."""
TOOLS = ["submit", "watch", "result", "explain", "models", "cancel"]
SECONDS = 300.0


def sdk(module: str = "mcp") -> Any:
    """Return a module of the SDK, whose import takes a second, which collecting the tests need not take."""
    return importlib.import_module(module)


def small() -> dict[str, Any]:
    """Return the arguments of `submit` for a run that reads no folder, as none is allowed over TCP here."""
    text = {"type": "text", "label": "a.txt", "value": "A dog ran home. It was late."}
    step = {"id": "S1", "actor": "worker", "action": "Summarize a.txt.", "inputs": ["a.txt"], "outputs": ["s"]}
    return {"task": {"objective": "a test", "inputs": [text], "plan": {"steps": [{**step, "max_tokens": 64}]}}}


@asynccontextmanager
async def over_tcp(daemon: Running, mode: str = "auto", token: str | None = None) -> AsyncIterator["Client"]:
    """Connect over TCP, with the daemon's token if no other is given."""
    headers = {"Authorization": f"Bearer {daemon.token if token is None else token}"}
    url = f"http://127.0.0.1:{daemon.port}/mcp"
    async with httpx2.AsyncClient(headers=headers, timeout=SECONDS) as http:
        connected = sdk("mcp.client.streamable_http").streamable_http_client(url, http_client=http)
        async with sdk().Client(connected, mode=mode) as client:
            yield client


@asynccontextmanager
async def over_socket(daemon: Running) -> AsyncIterator["Client"]:
    """Connect over the Unix socket."""
    transport = httpx2.AsyncHTTPTransport(uds=str(Home(daemon.home).socket))
    async with httpx2.AsyncClient(transport=transport, timeout=SECONDS) as http:
        connected = sdk("mcp.client.streamable_http").streamable_http_client("http://localhost/mcp", http_client=http)
        async with sdk().Client(connected) as client:
            yield client


@asynccontextmanager
async def over_stdio(daemon: Running, mode: str = "auto") -> AsyncIterator["Client"]:
    """Connect to `orchestrator mcp`."""
    environ = {**os.environ, "ORCHESTRATOR_HOME": str(daemon.home), "PYTHONPATH": str(ROOT)}
    command = sdk().StdioServerParameters(
        command=sys.executable, args=["-m", "orchestrator", "mcp"], env=environ, cwd=str(ROOT)
    )
    async with sdk().Client(command, mode=mode) as client:
        yield client


async def asked(client: "Client", tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool, and return its structured result, which its text says too."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    found = result.structured_content
    assert isinstance(found, dict)
    assert json.loads(text_of(result)) == found
    return found


async def refused(client: "Client", tool: str, **arguments: Any) -> str:
    """Call a tool, and return the text of its error."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result
    return text_of(result)


def text_of(result: "CallToolResult") -> str:
    (block,) = result.content
    assert block.type == "text"
    return block.text


@pytest.mark.parametrize("mode", [NEWEST, HANDSHAKE, "auto"])
async def test_both_kinds_of_revisions_are_answered_at_one_address(daemon: Running, mode: str) -> None:
    async with over_tcp(daemon, mode) as client:
        assert (client.protocol_version == NEWEST) == (mode != HANDSHAKE)
        listed = (await client.list_tools()).tools
        assert [tool.name for tool in listed] == TOOLS
        assert all(tool.input_schema["type"] == "object" and tool.description for tool in listed)
        submitted = await asked(client, "submit", **small())
        told: list[str | None] = []

        async def report(progress: float, total: float | None, message: str | None) -> None:
            told.append(message)

        watched = await client.call_tool("watch", {"run_id": submitted["run_id"]}, progress_callback=report)
        assert isinstance(watched.structured_content, dict)
        assert watched.structured_content["status"] == "done"
        assert {"run accepted", "S1: attempt started"} <= set(told)


async def test_results_artifacts_and_explanations(daemon: Running) -> None:
    async with over_socket(daemon) as client:
        run = (await asked(client, "submit", key="mcp-key", **summary()))["run_id"]
        again = await asked(client, "submit", key="mcp-key", **summary())
        assert (again["run_id"], again["new"]) == (run, False)
        ended = await asked(client, "watch", run_id=run)
        result = await asked(client, "result", run_id=run)
        assert {**result, "after": ended["after"]} == ended
        assert list(result["artifacts"]) == ["summary.txt"]
        artifact = await asked(client, "result", run_id=run, artifact="summary.txt")
        assert artifact["text"] == result["answer"]
        assert (await asked(client, "explain", run_id=run))["run_id"] == run
        step = await asked(client, "explain", run_id=run, step="S1")
        assert (step["step"]["id"], step["on_critical_path"]) == ("S1", True)
        models = await asked(client, "models")
        assert models["registry"]["roles"]
        assert models["pool"]["models"]


async def test_a_watch_may_end_before_the_run_which_can_be_cancelled(daemon: Running) -> None:
    async with over_socket(daemon) as client:
        run = (await asked(client, "submit", **lasting()))["run_id"]
        early = await asked(client, "watch", run_id=run, seconds=0.2)
        assert early["status"] not in ("done", "failed", "cancelled")
        await asked(client, "cancel", run_id=run)
        late = await asked(client, "watch", run_id=run, after=early["after"])
        assert late["status"] == "cancelled"
        assert late["after"] > early["after"]


async def test_wrong_calls_say_what_would_be_accepted(daemon: Running) -> None:
    async with over_socket(daemon) as client:
        assert "exactly one of them" in await refused(client, "submit")
        assert "nothing" in await refused(client, "watch", run_id="nothing")
        assert "run_id: is missing" in await refused(client, "result")
        assert "is not known" in await refused(client, "models", all=True)
        assert "seconds" in await refused(client, "watch", run_id="a", seconds=-1)
        task = {"objective": "a", "plan": {"steps": [{"id": "S1", "actor": "nobody", "action": "a", "outputs": ["o"]}]}}
        assert "unknown role" in await refused(client, "submit", task=task)
        run = (await asked(client, "submit", **summary()))["run_id"]
        await asked(client, "watch", run_id=run)
        assert "S1" in await refused(client, "explain", run_id=run, step="S9")
        assert "no artifact" in await refused(client, "result", run_id=run, artifact="none.txt")
        with pytest.raises(sdk().MCPError, match="accepted: submit, watch"):
            await client.call_tool("sudo", {})


@asynccontextmanager
async def taking_tasks(daemon: Running, token: str | None = None) -> AsyncIterator["Client"]:
    """Connect over TCP with a client that takes tasks, with the daemon's token if no other is given."""
    headers = {"Authorization": f"Bearer {daemon.token if token is None else token}"}
    url = f"http://127.0.0.1:{daemon.port}/mcp"
    async with httpx2.AsyncClient(headers=headers, timeout=SECONDS) as http:
        connected = sdk("mcp.client.streamable_http").streamable_http_client(url, http_client=http)
        extension = sdk("tests.orchestrator.api.mcp_tasks").TaskExtension()
        async with sdk().Client(connected, extensions=[extension]) as client:
            yield client


async def test_a_client_that_takes_tasks_gets_one_of_a_run_and_polls_it(daemon: Running) -> None:
    tasks = sdk("tests.orchestrator.api.mcp_tasks")
    async with taking_tasks(daemon) as client:
        assert tasks.IDENTIFIER in (client.server_capabilities.extensions or {})
        run = (await asked(client, "submit", **lasting()))["run_id"]
        created: Any = await client.session.call_tool("watch", {"run_id": run}, allow_claimed=True)
        assert (created.task_id, created.status, created.result_type) == (run, "working", "task")
        assert created.created_at <= created.last_updated_at
        state = await tasks.get(client.session, run)
        assert (state.task_id, state.status, state.ttl_ms) == (run, "working", None)
        await tasks.tell(client.session, "tasks/update", run)
        await tasks.tell(client.session, "tasks/cancel", run)
        assert (await tasks.ended(client.session, run)).status == "cancelled"

        run = (await asked(client, "submit", **small()))["run_id"]
        watched = await asked(client, "watch", run_id=run)
        assert (watched["run_id"], watched["status"]) == (run, "done")
        result = (await tasks.get(client.session, run)).result
        assert result is not None
        assert result["structuredContent"] == watched
        assert (await asked(client, "watch", run_id=run, seconds=60))["status"] == "done"
        with pytest.raises(sdk().MCPError, match="taskId: "):
            await tasks.get(client.session, "20200101-000000-00000000")


async def test_rights_are_those_of_the_listener(daemon: Running) -> None:
    async with over_tcp(daemon) as client:
        told = await refused(client, "submit", **{**summary(), "directory": "/etc"})
        assert "may not be used by this caller" in told
    let_in: list[Any] = []
    with suppress(sdk().MCPError, BaseExceptionGroup):
        async with over_tcp(daemon, token="x" * 43) as client:
            let_in.append(client)
    assert let_in == []
    with daemon.tcp() as plain:
        assert plain.post("/mcp", json={}).status_code == 401
    with daemon.client() as local:
        assert local.get("/mcp").status_code == 405
        assert local.post("/mcp", json={}, headers={"Origin": "http://evil.example"}).status_code == 403
        assert local.post("/mcp", content=b"x" * (17 << 20)).status_code == 413
        assert 400 <= local.post("/mcp", content=b"{").status_code < 500


@pytest.mark.parametrize("mode", [NEWEST, pytest.param(HANDSHAKE, marks=pytest.mark.slow)])
async def test_the_command_serves_the_same_over_stdio(daemon: Running, mode: str) -> None:
    async with over_stdio(daemon, mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS
        run = (await asked(client, "submit", **summary()))["run_id"]
        told: list[str | None] = []

        async def report(progress: float, total: float | None, message: str | None) -> None:
            told.append(message)

        watched = await client.call_tool("watch", {"run_id": run}, progress_callback=report)
        assert isinstance(watched.structured_content, dict)
        assert watched.structured_content["status"] == "done"
        assert {"run accepted", "S1: attempt started"} <= set(told)
        assert "no step 'S9'" in await refused(client, "explain", run_id=run, step="S9")
