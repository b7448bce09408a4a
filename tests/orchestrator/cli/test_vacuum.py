"""`orchestrator vacuum` without a daemon: what it says it would do is what it does."""

import asyncio
from pathlib import Path

import pytest

from orchestrator.events import RunAccepted, RunFinished
from orchestrator.journal import Journal, JournalReader
from tests.orchestrator.cli.cli_command import Cli


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
