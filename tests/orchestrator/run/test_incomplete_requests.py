"""A run whose request needs what is not here fails before any model is asked, and says what is missing."""

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import RequestIncomplete
from orchestrator.run.job import Job
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.orchestrator import Orchestrator, Ports
from orchestrator.run.record.progress_lines import ProgressLines
from orchestrator.run.steps.tools.servers import ToolServer
from orchestrator.task.events import PlanFailed, StepsPlanned
from tests.orchestrator.run_jobs import ON_DEMAND, RECORDS, execute, report_of

MISSING = "aa.txt is not among the files of the request (perhaps a.txt is meant)"
SUMMARIZE = Job("Summarize aa.txt", None, RECORDS, "as-planned")


async def test_run_that_needs_a_missing_file_fails_before_any_model_is_loaded(tmp_path: Path) -> None:
    async with Orchestrator.open(tmp_path, ON_DEMAND) as orchestrator:
        run = await execute(orchestrator, SUMMARIZE)
        assert orchestrator.pool.resident == frozenset()
    report = report_of(tmp_path, run)
    assert (report.status, report.missing, report.error) == ("failed", (MISSING,), MISSING)
    assert (report.steps, report.plan_usage.output_tokens) == ((), 0)
    assert report.to_json()["missing"] == [MISSING]
    with JournalReader.open_to_read(tmp_path) as journal:
        events = [event for _, event in journal.events(run)]
    assert not any(isinstance(event, StepsPlanned) for event in events)
    (failed,) = [event for event in events if isinstance(event, PlanFailed)]
    assert ProgressLines().lines(failed) == (f"Missing: {MISSING}.",)


async def test_plan_without_a_run_says_what_is_missing(tmp_path: Path) -> None:
    async with Orchestrator.open(tmp_path, ON_DEMAND) as orchestrator:
        with pytest.raises(RequestIncomplete, match="perhaps a"):
            await orchestrator.plan(SUMMARIZE)


async def test_order_for_a_tool_is_refused_unless_there_are_tools(tmp_path: Path) -> None:
    book = replace(SUMMARIZE, request="Book me a flight to Lisbon.")
    async with Orchestrator.open(tmp_path / "without", ON_DEMAND) as orchestrator:
        run = await execute(orchestrator, book)
    (missing,) = report_of(tmp_path / "without", run).missing
    assert missing.startswith("the request needs a tool that books or reserves, and there is none")
    server = ToolServer(name="travel", url="http://127.0.0.1:9/mcp")
    ports = Ports(servers=lambda: {"travel": server})
    async with Orchestrator.open(tmp_path / "with", ON_DEMAND, ports) as orchestrator:
        assert (await orchestrator.plan(book)).task.plan.steps
