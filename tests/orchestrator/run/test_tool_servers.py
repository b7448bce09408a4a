"""Whole runs whose steps use an MCP server: what `validate` says of them, and what is journaled."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from orchestrator.run.job import CheckedJob, check_job
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.orchestrator import Orchestrator, Ports
from orchestrator.run.sandbox.sandbox import Sandbox, SandboxOnDemand
from orchestrator.run.steps.tools.servers import ToolServer
from orchestrator.task.taskir.problems import InvalidTask
from tests.orchestrator.run.steps.tools.server_fixture import plain
from tests.orchestrator.run_jobs import ON_DEMAND, execute, job, report_of

pytestmark = pytest.mark.asyncio(loop_scope="module")


def servers() -> Mapping[str, ToolServer]:
    return {"plain": plain(), "dead": plain("dies", "dead")}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("servers") / "home"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def orchestrator(home: Path, sandbox: Sandbox) -> AsyncIterator[Orchestrator]:
    async with Orchestrator.open(home, ON_DEMAND, Ports(servers=servers, follows_registry=False)) as opened:
        yield opened


def call(name: str, tool: str, output: str, **arguments: Any) -> dict[str, Any]:
    """Return a step that is one call."""
    return {
        "id": name,
        "actor": "worker",
        "action": "Call it.",
        "kind": "tool",
        "tools": [tool],
        "arguments": arguments,
        "outputs": [output],
    }


async def checked(orchestrator: Orchestrator, *steps: dict[str, Any]) -> CheckedJob:
    return await check_job(job([*steps]), ON_DEMAND, orchestrator.journal, SandboxOnDemand(), servers=servers)


async def test_a_run_uses_tools_of_a_server(orchestrator: Orchestrator, home: Path) -> None:
    first = call("S1", "mcp:plain/echo", "a.txt", text="a wolf")
    second = call("S2", "mcp:plain/echo", "b.txt", text={"$input": "a.txt"}) | {"inputs": ["a.txt"]}
    run = await execute(orchestrator, job([first, second]))
    report = report_of(home, run)
    assert report.status == "done"
    assert (home / "runs" / run / "artifacts" / "b.txt").read_text() == "a wolf"
    calls = [call for step in report.steps for attempt in step.attempts for call in attempt.calls]
    assert [(one.tool, json.loads(one.arguments), one.outcome) for one in calls] == [
        ("mcp:plain/echo", {"text": "a wolf"}, "done"),
        ("mcp:plain/echo", {"text": "a wolf"}, "done"),
    ]


async def test_a_server_that_dies_is_started_anew(orchestrator: Orchestrator, home: Path) -> None:
    run = await execute(orchestrator, job([call("S1", "mcp:plain/die", "a.txt")]))
    report = report_of(home, run)
    assert report.status == "failed"
    attempts = report.steps[0].attempts
    assert len(attempts) > 1, "it is tried again, each time with a new program"
    assert all("out of cheese" in (attempt.message or "") for attempt in attempts)
    with JournalReader.open_to_read(home) as journal:
        kinds = [event.failure.kind for _, event in journal.events(run) if hasattr(event, "failure")]
    assert set(map(str, kinds)) == {"infrastructure"}


@pytest.mark.parametrize(
    ("tool", "told"),
    [
        ("mcp:plain/eco", "MCP server plain has no tool 'eco'; it has echo, fail"),
        ("mcp:plan/echo", "there is no MCP server 'plan'; accepted: plain, dead"),
        ("mcp:dead/echo", "the database is locked"),
        ("mcp:", "accepted: mcp:SERVER/TOOL"),
    ],
)
async def test_unknown_servers_and_tools_are_refused(orchestrator: Orchestrator, tool: str, told: str) -> None:
    with pytest.raises(InvalidTask) as caught:
        await checked(orchestrator, call("S1", tool, "a.txt", text="a"))
    (problem, *_) = caught.value.problems
    assert (problem.where, told in problem.what) == ("/plan/steps/0/tools/0", True), problem
    assert "read_file" in problem.accepted


async def test_arguments_are_checked_by_the_schema_of_the_server(orchestrator: Orchestrator) -> None:
    with pytest.raises(InvalidTask, match="'text' is a required property"):
        await checked(orchestrator, call("S1", "mcp:plain/echo", "a.txt", words="a"))
    found = await checked(orchestrator, call("S1", "mcp:plain/even", "a.txt", n=4))
    assert [warning for warning in found.warnings if "multipleOf" in warning]
