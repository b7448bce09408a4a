"""A full disk, as SQLite knows it: a database that may not grow."""

import asyncio
import errno
import os
import sqlite3
from pathlib import Path

import pytest

from orchestrator.run.journal.errors import DiskFull, JournalError
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.store import sqlite_errors
from orchestrator.task.events import RunAccepted, StepExpanded


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def accepted(run: str) -> RunAccepted:
    return RunAccepted(at=0.0, run=run, mode="serial", request="fill")


def allow(journal: Journal, more: int) -> None:
    """Let the database grow by so many pages from what it has now."""
    database = journal._writer._store._connection
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count = {pages + more}")


async def write(journal: Journal, run: str, numbers: range) -> None:
    for number in numbers:
        await journal.append(run, [StepExpanded(at=1.0, step="S" * 1000, count=number)])


async def until_full(journal: Journal, *, full: bool) -> None:
    while (journal.full is not None) is not full:  # noqa: ASYNC110 - nobody is told, and nobody but a test waits
        await asyncio.sleep(0.01)


def counts(journal: Journal, run: str) -> list[int]:
    return [event.count for _, event in journal.events(run) if isinstance(event, StepExpanded)]


async def test_full_disk_is_waited_for(home: Path) -> None:
    with Journal.open(home) as journal:
        await journal.append("A", [accepted("A")])
        await journal.append("B", [accepted("B")])
        allow(journal, 10)
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            for run in ("A", "B"):
                tasks.create_task(write(journal, run, range(40)))
            await until_full(journal, full=True)
            assert "no room is left" in str(journal.full)
            assert len(counts(journal, "A")) < 40
            allow(journal, 1000)
            await until_full(journal, full=False)
        assert counts(journal, "A") == counts(journal, "B") == list(range(40))
        assert journal.damage() == []


async def test_run_that_would_begin_on_a_full_disk_is_refused(home: Path) -> None:
    with Journal.open(home) as journal:
        await journal.append("A", [accepted("A")])
        allow(journal, 2)
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            tasks.create_task(write(journal, "A", range(40)))
            await until_full(journal, full=True)
            with pytest.raises(DiskFull):
                await journal.append("B", [accepted("B")])
            allow(journal, 1000)
        await journal.append("B", [accepted("B")])
        assert {row.run for row in journal.runs()} == {"A", "B"}


async def test_refusal_alone_is_nothing_to_wait_for(home: Path) -> None:
    with Journal.open(home) as journal:
        allow(journal, 0)
        with pytest.raises(DiskFull):
            await journal.append("A", [RunAccepted(at=0.0, run="A", mode="serial", request="r" * 100_000)])
        assert journal.full is None
        await journal.append("B", [accepted("B")])


@pytest.mark.parametrize(
    ("what", "code", "kind"),
    [
        (errno.EDQUOT, sqlite3.SQLITE_IOERR_WRITE, DiskFull),
        (errno.ENOSPC, sqlite3.SQLITE_IOERR_SHMSIZE, DiskFull),
        (errno.EDQUOT, sqlite3.SQLITE_IOERR_FSYNC, JournalError),  # what was written before may be lost
        (errno.EIO, sqlite3.SQLITE_IOERR_WRITE, JournalError),
        (None, sqlite3.SQLITE_IOERR_WRITE, JournalError),
    ],
)
def test_quota_that_is_used_up_is_distinguished_from_other_failed_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: int | None, code: int, kind: type[JournalError]
) -> None:
    def fail(_: int) -> None:
        if what is not None:
            raise OSError(what, "as the test says")

    monkeypatch.setattr(os, "fsync", fail)
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    with pytest.raises(JournalError) as told, sqlite_errors(tmp_path / "journal.db"):
        raise error
    assert type(told.value) is kind


async def test_what_ends_all_writing_is_reported(home: Path) -> None:
    with Journal.open(home) as journal:
        told = asyncio.create_task(journal.breakdown())
        await journal.append("A", [accepted("A")])
        assert not told.done()
        journal._writer._store._connection.execute("PRAGMA query_only = ON")
        with pytest.raises(JournalError, match="readonly"):
            await journal.append("B", [accepted("B")])
        assert "readonly" in str(await told)


async def test_closing_waits_for_no_room(home: Path) -> None:
    with Journal.open(home) as journal:
        await journal.append("A", [accepted("A")])
        allow(journal, 2)
        writing = asyncio.create_task(write(journal, "A", range(40)))
        async with asyncio.timeout(60):
            await until_full(journal, full=True)
        await asyncio.to_thread(journal.close)
        with pytest.raises(DiskFull):
            await writing
    with Journal.open(home) as journal:
        there = counts(journal, "A")
        assert there == list(range(len(there)))
        await write(journal, "A", range(len(there), 40))
        assert counts(journal, "A") == list(range(40))
