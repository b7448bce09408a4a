"""Steps with tools of MCP servers: real programs in the sandbox, and a real one over HTTP."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.client.grammar import schema_grammar
from orchestrator.run.sandbox.errors import InvalidJob
from orchestrator.run.sandbox.sandbox import Sandbox
from orchestrator.run.steps.attempt import AttemptError, Produced
from orchestrator.run.steps.repl.host import Host
from orchestrator.run.steps.repl.session import interpreter
from orchestrator.run.steps.repl.subcalls import ReplBudget
from orchestrator.run.steps.tools.actions import Allowed, action_schema
from orchestrator.run.steps.tools.attempt import ServedRunner, ToolRunner
from orchestrator.run.steps.tools.contract import Tool, ToolServerFailed
from orchestrator.run.steps.tools.servers import ToolServer, ToolServers
from orchestrator.run.steps.tools.toolbox import Call, Toolbox
from orchestrator.task.events import Failure, FailureKind
from orchestrator.task.taskir.models import Step
from tests.orchestrator.model_calls import attempt_of
from tests.orchestrator.run.steps.repl.repl_fixture import ReplFixture, echo
from tests.orchestrator.run.steps.tools.server_fixture import (
    modern,
    modern_over_http,
    plain,
    servers_of,
)
from tests.orchestrator.run.steps.tools.test_tool_attempt import Actor
from tests.orchestrator.run.steps.tools.tool_fixture import ToolFixture


class ServedSteps:
    """Carries out steps with these servers, and keeps the calls that were told."""

    def __init__(self, folder: Path, servers: ToolServers) -> None:
        self._folder = folder
        self._servers = servers
        self.calls: list[Call] = []

    async def step(self, tools: Sequence[str], actor: Actor | None = None, **more: Any) -> Produced:
        """Carry out an attempt at a step with these tools."""
        fields = {"id": "S1", "actor": "worker", "action": "Do it.", "outputs": ("o.txt",), "kind": "tool"}
        step = Step.model_validate({**fields, "tools": tools, **more})
        runner = ServedRunner(self._servers, partial(self._runner, tuple(tools)))
        return await runner.run(attempt_of(step, system="Act.", max_tokens=200), actor or Actor())

    def _runner(self, granted: tuple[str, ...], served: Mapping[str, Tool]) -> ToolRunner:
        fixture = ToolFixture(self._folder, outputs=("o.txt",))
        return ToolRunner(Toolbox(granted, fixture.toolbox.context, self.calls.append, served), None, 10)

    async def failing(self, tools: Sequence[str], **more: Any) -> Failure:
        """Return the failure of such an attempt."""
        with pytest.raises(AttemptError) as caught:
            await self.step(tools, **more)
        return caught.value.failure


async def called(steps: ServedSteps, tool: str, **arguments: object) -> str:
    """Return what a step makes that is one call."""
    return (await steps.step([tool], arguments=arguments)).outputs["o.txt"].decode()


async def test_a_program_that_speaks_the_newest_revision(tmp_path: Path, sandbox: Sandbox) -> None:
    steps = ServedSteps(tmp_path, servers_of(sandbox, modern()))
    assert json.loads(await called(steps, "mcp:modern/add", a=2, b=40)) == {"sum": 42}
    assert "2026-07-28" in await called(steps, "mcp:modern/revision")
    assert [(call.tool, call.outcome) for call in steps.calls] == [
        ("mcp:modern/add", "done"),
        ("mcp:modern/revision", "done"),
    ]
    for call in steps.calls:
        assert call.work_seconds is not None
        assert call.awaited_seconds > 0, "what a call waits for its server is no work"
        assert call.work_seconds + call.awaited_seconds == pytest.approx(call.seconds, abs=1e-3)


async def test_a_call_that_is_made_again_has_the_same_idempotency_key(tmp_path: Path, sandbox: Sandbox) -> None:
    steps = ServedSteps(tmp_path, servers_of(sandbox, modern()))
    keys = [await called(steps, "mcp:modern/key", what=what) for what in ("a", "a", "b")]
    assert keys[0] == keys[1] != keys[2], "each is an attempt of its own at the same step"
    context = ToolFixture(tmp_path).toolbox.context
    first, second = (context.call_key("mcp:modern/key", {"what": "a"}) for _ in range(2))
    assert f'"{first}"' == keys[0]
    assert first != second, "one attempt calls twice"
    assert replace(context, scope="another run/S1", made=Counter()).call_key("mcp:modern/key", {"what": "a"}) != first


async def test_a_server_over_http_gets_its_token(
    tmp_path: Path, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    with modern_over_http() as server:
        steps = ServedSteps(tmp_path, servers_of(sandbox, server))
        assert json.loads(await called(steps, "mcp:modern/add", a=1, b=1)) == {"sum": 2}
        assert "2026-07-28" in await called(steps, "mcp:modern/revision")
        monkeypatch.setenv("WRONG_TOKEN", "mustard")
        for variable, told in (
            ("WRONG_TOKEN", "HTTP 401"),
            ("NO_SUCH_TOKEN", "NO_SUCH_TOKEN, which is to hold its token, is not set"),
        ):
            other = ServedSteps(tmp_path, servers_of(sandbox, replace(server, token_env=variable)))
            refused = await other.failing(["mcp:modern/add"], arguments={"a": 1, "b": 1})
            assert (refused.kind, told in refused.message) == (FailureKind.INFRASTRUCTURE, True), refused
    gone = await steps.failing(["mcp:modern/add"], arguments={"a": 1, "b": 1})
    assert gone.kind is FailureKind.INFRASTRUCTURE


@pytest.mark.parametrize("mode", ["good", "chatty"])
async def test_a_program_that_speaks_an_older_revision_alone(tmp_path: Path, sandbox: Sandbox, mode: str) -> None:
    steps = ServedSteps(tmp_path, servers_of(sandbox, plain(mode, env={"FLAVOUR": "lemon", "EMPTY": ""})))
    assert await called(steps, "mcp:plain/echo", text="hello\nthere") == "hello\nthere"
    environment = json.loads(await called(steps, "mcp:plain/environment"))
    assert (environment["FLAVOUR"], environment["EMPTY"], environment["USER"]) == ("lemon", "", "sandbox")
    assert not [name for name in environment if name.startswith("ORCHESTRATOR")]


async def test_a_model_calls_the_tools_that_its_step_names_and_no_others(tmp_path: Path, sandbox: Sandbox) -> None:
    steps = ServedSteps(tmp_path, servers_of(sandbox, plain()))
    actor = Actor(
        {"tool": "mcp:plain/echo", "arguments": {"text": "first"}},
        {"tool": "mcp:plain/fail", "arguments": {}},
        {"tool": "mcp:plain/environment", "arguments": {}},
        {"tool": "mcp:plain/echo", "arguments": {"words": "second"}},
        {"finish": "done"},
    )
    made = await steps.step(["mcp:plain/echo", "mcp:plain/fail"], actor)
    assert made.outputs["o.txt"] == b"done"
    assert [call.outcome for call in steps.calls] == ["done", "failed", "refused", "refused"]
    told = [request.messages[-1].content for request in actor.asked]
    assert "first" in told[1]
    assert "the ice is too thin" in told[2]
    assert "this step has no tool 'mcp:plain/environment'; accepted: mcp:plain/echo, mcp:plain/fail" in told[3]
    assert "'text' is a required property" in told[4]
    assert "mcp:plain/echo(text)" in actor.asked[0].messages[-1].content


async def test_code_calls_the_tools_too(tmp_path: Path, sandbox: Sandbox) -> None:
    granted = ("mcp:plain/echo", "mcp:plain/die")
    fixture = ReplFixture(tmp_path, ReplBudget(), echo, granted)
    async with servers_of(sandbox, plain()).open(granted) as served:
        toolbox = Toolbox(granted, fixture.toolbox.context, fixture.calls.append, served)
        host = Host(toolbox, fixture.outputs, fixture.subcalls, fixture.spending, fixture.calls.append)
        async with interpreter(sandbox.open, host, fixture.outputs, fixture.budget) as program:
            ended = await program.run('final(tool("mcp:plain/echo", text="from code"))')
            assert (ended.final, ended.value) == (True, "from code")
            with pytest.raises(AttemptError, match="out of cheese"):
                await program.run('tool("mcp:plain/die")')
    assert [(call.tool, call.outcome) for call in fixture.calls] == [(granted[0], "done"), (granted[1], "failed")]


async def test_servers_that_no_tool_of_the_step_names_are_not_started(tmp_path: Path, sandbox: Sandbox) -> None:
    steps = ServedSteps(tmp_path, servers_of(sandbox, plain("dies", "dead"), plain()))
    assert await called(steps, "mcp:plain/echo", text="alone") == "alone"


@pytest.mark.parametrize(
    ("server", "told"),
    [
        (plain("dies"), "its program has ended with exit code 3: the database is locked"),
        (plain("silent", start_seconds=3.0), "MCP server plain: "),
        (ToolServer(name="plain", command=("no-such-program",)), "no-such-program"),
        (ToolServer(name="plain", command=("true",), folders=("/no/such",)), "'/no/such' cannot be shown"),
        (plain(memory=1 << 50), "the job needs"),
        (ToolServer(name="plain", url="http://127.0.0.1:9/mcp", start_seconds=10.0), "MCP server plain: "),
    ],
    ids=["dies", "silent", "missing", "folder", "memory", "refused"],
)
async def test_a_server_that_does_not_start_is_infrastructure(
    tmp_path: Path, sandbox: Sandbox, server: ToolServer, told: str
) -> None:
    steps = ServedSteps(tmp_path, servers_of(sandbox, server))
    found = await steps.failing(["mcp:plain/echo"], arguments={"text": "a"})
    assert (found.kind, found.final) == (FailureKind.INFRASTRUCTURE, False)
    assert told in found.message, found.message


async def test_what_a_program_writes_that_is_no_server_is_told(tmp_path: Path, sandbox: Sandbox) -> None:
    told = "it wrote a line that is no message of MCP: 'Server ready, have fun!'"
    for seconds in (3.0, 30.0, 100.0):  # the program gets only idle cores, so that it may not have written anything yet
        steps = ServedSteps(tmp_path, servers_of(sandbox, plain("rubbish", start_seconds=seconds)))
        found = await steps.failing(["mcp:plain/echo"], arguments={"text": "a"})
        assert (found.kind, found.final) == (FailureKind.INFRASTRUCTURE, False)
        if told in found.message:
            return
    pytest.fail(found.message)


@pytest.mark.parametrize(
    ("tool", "kind", "final", "told"),
    [
        ("die", FailureKind.INFRASTRUCTURE, False, "its program has ended with exit code 7: out of cheese"),
        ("broken", FailureKind.INFRASTRUCTURE, False, "its answer is no result of a tool"),
        ("slow", FailureKind.TIMEOUT, True, "there was no answer within 1 s"),
        ("large", FailureKind.RESOURCE, True, "accepted: at most 1048576"),
        ("fail", FailureKind.CODE, True, "the tool failed: the ice is too thin"),
    ],
)
async def test_calls_that_go_wrong(
    tmp_path: Path, sandbox: Sandbox, tool: str, kind: FailureKind, final: bool, told: str
) -> None:
    server = plain(seconds=1.0) if kind is FailureKind.TIMEOUT else plain()
    steps = ServedSteps(tmp_path, servers_of(sandbox, server))
    found = await steps.failing([f"mcp:plain/{tool}"], arguments={})
    assert (found.kind, found.final, told in found.message) == (kind, final, True), found
    assert [(call.tool, call.outcome) for call in steps.calls] == [(f"mcp:plain/{tool}", "failed")]


async def test_a_model_whose_server_has_died_is_not_asked_again(tmp_path: Path, sandbox: Sandbox) -> None:
    steps = ServedSteps(tmp_path, servers_of(sandbox, plain()))
    actor = Actor({"tool": "mcp:plain/die", "arguments": {}}, {"finish": "it went well"})
    with pytest.raises(AttemptError) as caught:
        await steps.step(["mcp:plain/die"], actor)
    assert caught.value.failure.kind is FailureKind.INFRASTRUCTURE
    assert len(actor.asked) == 1


async def test_an_attempt_that_is_stopped_leaves_no_program_behind(tmp_path: Path, sandbox: Sandbox) -> None:
    steps = ServedSteps(tmp_path, servers_of(sandbox, plain()))
    found = await steps.failing(["mcp:plain/slow"], arguments={}, timeout_seconds=0.5)
    assert found.kind is FailureKind.TIMEOUT
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await called(steps, "mcp:plain/echo", text="too early")


async def test_a_listing_says_what_can_be_used_and_why_the_rest_cannot(sandbox: Sandbox) -> None:
    servers = servers_of(sandbox, plain("odd", "odd"), plain("dies", "dead"), plain())
    asked = [
        "read_file",
        "mcp:odd/fine",
        "mcp:odd/elsewhere",
        "mcp:odd/nowhere",
        "mcp:odd/impossible",
        "mcp:odd/no_schema",
        "mcp:odd/missing",
        "mcp:dead/echo",
        "mcp:nobody/echo",
        "mcp:plain",
    ]
    found = await servers.listing(asked)
    assert list(found.tools) == ["mcp:odd/fine"]
    why = found.unavailable
    assert set(why) == set(asked[2:])
    assert "it refers to 'https://example.org/schema.json'" in why["mcp:odd/elsewhere"]
    assert "nothing is at #/$defs/none" in why["mcp:odd/nowhere"]
    assert "cannot be used" in why["mcp:odd/impossible"]
    assert "not a JSON Schema" in why["mcp:odd/no_schema"]
    assert "MCP server odd has no tool 'missing'; it has fine, elsewhere" in why["mcp:odd/missing"]
    assert "the database is locked" in why["mcp:dead/echo"]
    assert why["mcp:nobody/echo"] == "there is no MCP server 'nobody'; accepted: odd, dead, plain"
    assert "accepted: mcp:SERVER/TOOL" in why["mcp:plain"]
    with pytest.raises(ToolServerFailed, match="refers to"):
        async with servers.open(["mcp:odd/elsewhere"]):
            raise AssertionError("it has been opened")


async def test_schemas_with_references_are_enforced_and_checked(tmp_path: Path, sandbox: Sandbox) -> None:
    steps = ServedSteps(tmp_path, servers_of(sandbox, plain()))
    tree = {"name": "a", "below": {"name": "b"}}
    assert await called(steps, "mcp:plain/depth", tree=tree) == "2"
    wrong = await steps.failing(["mcp:plain/depth"], arguments={"tree": {"below": {}}})
    assert wrong.kind is FailureKind.SCHEMA
    listing = await servers_of(sandbox, plain()).listing(["mcp:plain/depth", "mcp:plain/echo"])
    tools = [listing.tools[name] for name in ("mcp:plain/echo", "mcp:plain/depth")]
    step = Step.model_validate({"id": "S1", "actor": "worker", "action": "a", "outputs": ["o"], "kind": "tool"})
    schema = action_schema(step, Allowed(tools, [], []))
    assert schema["anyOf"][1]["properties"]["arguments"]["properties"]["tree"] == {
        "$ref": "#/anyOf/1/properties/arguments/$defs/node"
    }
    assert "mcp:plain/depth" in schema_grammar(schema)


async def test_servers_share_a_third_of_the_memory_of_the_sandbox(tmp_path: Path, sandbox: Sandbox) -> None:
    memory = sandbox.budget.total // 3 - (256 << 20)
    servers = servers_of(sandbox, plain(memory=memory), plain(name="second", memory=memory, start_seconds=1.0))
    async with servers.open(["mcp:plain/echo"]):
        with pytest.raises(ToolServerFailed, match="was not ready within 1 s"):
            async with servers.open(["mcp:second/echo"]):
                raise AssertionError("both are open")
    async with servers.open(["mcp:plain/echo"]) as tools:
        assert set(tools) == {"mcp:plain/echo"}


def test_a_sandbox_shows_further_folders(tmp_path: Path, sandbox: Sandbox) -> None:
    shown = sandbox.showing([str(tmp_path)])
    assert shown.config.view.readable == (*sandbox.config.view.readable, str(tmp_path))
    assert replace(shown, config=sandbox.config) == sandbox
    for folder in ("/", "relative", str(tmp_path / "missing"), f"{tmp_path}/../../../../../.."):
        with pytest.raises(InvalidJob, match="accepted: an absolute path of a folder or a file"):
            sandbox.showing([folder])
