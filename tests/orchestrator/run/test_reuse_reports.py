"""What a run on the embedded models reports about the tokens that its steps share, and what the doctor makes of it."""

import asyncio
import io
import json
import os
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
import pytest_asyncio
from rich.console import Console

from orchestrator.cli.explain_view import print_explanation
from orchestrator.cli.report_view import print_report
from orchestrator.run.journal.home import Home
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.orchestrator import Orchestrator
from orchestrator.run.record.report import Report
from orchestrator.run.record.view import RunView
from orchestrator.service.doctor import examine
from tests.orchestrator.run_jobs import REGISTRY, execute, job, report_of, step

pytestmark = pytest.mark.asyncio(loop_scope="module")

FILES = ["a.txt", "b.txt", "c.txt", "d.txt"]
"""Together a few hundred tokens."""
ACTIONS = ["Summarize the files.", "Compare the files.", "List each name in the files.", "Count the words."]
QUESTIONS = [step(f"S{number}", action, FILES, [f"s{number}"]) for number, action in enumerate(ACTIONS, 1)]
OTHER_PERSONA = step("S5", ACTIONS[0], FILES, ["s5"], persona="table", depends_on=["S4"])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest_asyncio.fixture(loop_scope="module")
async def orchestrator(home: Path) -> AsyncIterator[Orchestrator]:
    async with Orchestrator.open(home, REGISTRY) as opened:
        yield opened


def printed(home: Path, report: Report, explained: str = "") -> str:
    """Return the printed report, or the explanation of one step."""
    console = Console(file=io.StringIO(), width=200)
    assert isinstance(console.file, io.StringIO)
    with JournalReader.open_to_read(home) as journal:
        view = RunView.of(event for _, event in journal.events(report.run_id))
    if explained:
        print_explanation(console, report, next(row for row in report.steps if row.id == explained))
    else:
        print_report(console, report, view, None, full=True)
    return " ".join(console.file.getvalue().split())


async def shared_prompts(home: Path) -> list[tuple[str, str, str]]:
    checks = await asyncio.to_thread(examine, Path("none.yaml"), home)
    return [(check.state, check.found, check.mend) for check in checks if check.name == "shared prompts"]


async def test_steps_that_read_the_same_files_reuse_all_that_was_expected(
    orchestrator: Orchestrator, home: Path
) -> None:
    report = report_of(home, await execute(orchestrator, job(QUESTIONS)))
    usages = [attempt.usage for row in report.steps for attempt in row.attempts]
    assert report.reuse.lost_tokens == {}
    assert report.reuse.expected_tokens == sum(usage.cached_tokens for usage in usages)
    assert report.reuse.expected_tokens > 0.7 * sum(usage.prompt_tokens for usage in usages)
    count = f"{report.reuse.expected_tokens:,}"
    line = f"{count} of {count} shared tokens reused"
    text = printed(home, report)
    assert f"Reuse {line}" in text
    assert "computed again" not in text
    assert await shared_prompts(home) == [
        ("ok", f"{count} of {count} shared tokens of the latest steps reused", ""),
    ]


async def test_a_step_whose_persona_precedes_what_it_shares_says_so(orchestrator: Orchestrator, home: Path) -> None:
    report = report_of(home, await execute(orchestrator, job([*QUESTIONS, OTHER_PERSONA])))
    *others, last = report.steps
    assert all(row.reuse.lost_tokens == {} for row in others)
    (lost,) = last.reuse.lost_tokens.values()
    assert last.reuse.lost_tokens == {"prompt differs": lost}
    why = f"{lost:,} computed again: the text before them differs"
    assert f"S5: {why}" in printed(home, report)
    assert why in printed(home, report, "S5")
    told = report.to_json()
    assert told["reuse"]["lost_tokens"] == {"prompt differs": lost}
    assert told["reuse"]["reused_tokens"] == told["reuse"]["expected_tokens"] - lost
    assert told["steps"][-1]["reuse"]["lost_tokens"] == {"prompt differs": lost}
    ((state, found, hint),) = await shared_prompts(home)
    assert f"{lost:,} not, since the text before them differs" in found
    assert (state, hint) == ("note", "give steps that read the same text the same role and persona")


async def test_steps_after_the_end_of_an_engine_say_so(orchestrator: Orchestrator, home: Path) -> None:
    await execute(orchestrator, job(QUESTIONS))
    (model,) = [model for model in orchestrator.pool.snapshot().models if model.pid is not None]
    assert model.pid is not None
    os.kill(model.pid, signal.SIGKILL)
    report = report_of(home, await execute(orchestrator, job(QUESTIONS)))
    assert report.status == "done"
    assert set(report.reuse.lost_tokens) == {"engine restarted"}
    text = printed(home, report)
    assert text.count("computed again") == text.count("computed again: the engine that had them has ended") > 0


async def test_a_journal_of_an_earlier_version_shows_nothing(orchestrator: Orchestrator, home: Path) -> None:
    run = await execute(orchestrator, job(QUESTIONS))
    with closing(sqlite3.connect(Home(home).database)) as connection:
        connection.execute("UPDATE events SET body = json_remove(body, '$.usage.reuse'), checksum = NULL")
        connection.commit()
    report = report_of(home, run)
    assert report.reuse.expected_tokens == 0
    assert "Reuse" not in printed(home, report)
    assert await shared_prompts(home) == []
    assert json.loads(json.dumps(report.to_json())) == report.to_json()
