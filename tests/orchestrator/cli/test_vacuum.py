"""`orchestrator vacuum` without a daemon: what it says it would do is what it does."""

import asyncio
import os
import pty
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.outcomes import AttemptOutcome
from orchestrator.run.journal.reader import JournalReader
from orchestrator.task.events import PromptDigests, RunAccepted, RunFinished
from tests.orchestrator.cli.cli_command import Cli

OUTCOME = AttemptOutcome(
    run="R1",
    task_type="code",
    step="S1",
    action="do it",
    attempt=1,
    role="worker",
    persona=None,
    model="m",
    reason="r",
    propensity=1.0,
    prompts=PromptDigests(),
    started=1.0,
    seconds=1.0,
    outcome="done",
    prompt_tokens=1,
    output_tokens=1,
    run_status="done",
)


@pytest.fixture
def kept(home: Path) -> Path:
    """A state folder with three runs that ended long ago, one that has not, and an object that nobody names."""

    async def write() -> None:
        with Journal.open(home) as journal:
            for number in range(4):
                run = f"R{number}"
                await journal.append(run, [RunAccepted(at=float(number), run=run, mode="serial", request="x")])
                if number:
                    await journal.append(run, [RunFinished(at=10.0 + number, status="done")])
            journal.put(b"nobody names this")

    asyncio.run(write())
    return home


def runs(home: Path) -> list[str]:
    with JournalReader.open_to_read(home) as journal:
        return [row.run for row in journal.runs()]


def test_nothing_is_removed_by_default_but_what_nobody_names(command: Cli, kept: Path) -> None:
    told = command("vacuum", "--dry-run", "--json").json
    assert (told["runs"], told["objects"], told["object_bytes"]) == ([], 1, 17)
    assert len(list((kept / "objects").glob("??/*"))) == 1
    assert "1 objects of 17 B removed" in command("vacuum").out
    assert list((kept / "objects").glob("??/*")) == []
    assert runs(kept) == ["R3", "R2", "R1", "R0"]


def test_the_newest_runs_are_left(command: Cli, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command("vacuum", "--runs", "2", "--dry-run", "--json").json["runs"] == ["R1"]
    assert runs(kept) == ["R3", "R2", "R1", "R0"]
    monkeypatch.setenv("ORCHESTRATOR_RETENTION_MAX_RUNS", "2")
    told = command("vacuum", "--json").json
    assert (told["runs"], told["runs_left"]) == (["R1"], 3)
    assert runs(kept) == ["R3", "R2", "R0"]
    assert command("vacuum", "--runs", "0", "--json").json["runs"] == []
    assert command("vacuum", "--days", "1", "--json").json["runs"] == ["R3", "R2"]
    assert runs(kept) == ["R0"], "it has not ended"


def test_where_there_are_no_runs_nothing_is_made(command: Cli, home: Path) -> None:
    ended = command("vacuum")
    assert ended.code == 2
    assert "holds no runs" in ended.err
    assert not home.exists()


def leave_outcomes(home: Path) -> None:
    """Leave two outcomes behind in the state folder, of runs that are gone."""
    with Journal.open(home) as journal:
        journal.delete("R1", outcomes=[replace(OUTCOME, attempt=number) for number in (1, 2)])


def outcomes(home: Path) -> int:
    with JournalReader.open_to_read(home) as journal:
        return journal.count_outcomes()


def test_outcomes_are_purged_only_when_that_is_confirmed(command: Cli, kept: Path) -> None:
    leave_outcomes(kept)
    assert command("vacuum", "--json").json["outcomes"] == 0
    assert "2 outcomes of attempts would be removed" in command("vacuum", "--outcomes", "--dry-run").out
    refused = command("vacuum", "--outcomes")
    assert refused.code == 2
    assert "--outcomes: asks before it purges, and stdin is not a terminal" in refused.err
    assert outcomes(kept) == 2
    assert command("vacuum", "--outcomes", "--yes", "--json").json["outcomes"] == 2
    assert outcomes(kept) == 0
    assert runs(kept) == ["R3", "R2", "R0"], "runs are kept as before"


@pytest.mark.parametrize(("answer", "code", "left"), [(b"n\n", 130, 2), (b"y\n", 0, 0)])
def test_at_a_terminal_the_user_is_asked(command: Cli, kept: Path, answer: bytes, code: int, left: int) -> None:
    leave_outcomes(kept)
    leader, follower = pty.openpty()
    with open(follower, encoding="utf-8") as terminal:
        os.write(leader, answer)
        ended = command("vacuum", "--outcomes", stdin=terminal)
    os.close(leader)
    assert "Purge the outcomes of 2 attempts of removed runs?" in ended.err
    assert (ended.code, outcomes(kept)) == (code, left)
