"""A copy of a journal gets each change before anybody hears of it, and stays the same."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.run.journal.errors import JournalCorrupt, JournalError
from orchestrator.run.journal.home import Home
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.objects import ObjectStore, digest_of
from orchestrator.run.journal.replica import Appended, Change, Replica, copy_database, list_objects
from orchestrator.run.journal.store import RefusedEvents
from orchestrator.task.events import Event, RunFinished
from orchestrator.task.personas import MadePersona
from tests.orchestrator.chat_events import ANSWERED, ROUTED
from tests.orchestrator.cli.test_vacuum import OUTCOME
from tests.orchestrator.run.journal.test_journal import accepted, story

PERSONA = MadePersona(name="terse", text="Be terse.", maker="user", made=1.0)


class Copying:
    """A replication into another folder of this machine."""

    def __init__(self, source: Home, replica: Replica) -> None:
        self.source = source
        self.replica = replica
        self.forbidden = ""
        self.changes: list[Change] = []

    def check(self) -> None:
        if self.forbidden:
            raise JournalError(self.source.path, self.forbidden)

    def note_object(self, digest: str) -> None:
        self.replica.put(ObjectStore(self.source.objects).get(digest))

    def commit(self, change: Change) -> None:
        self.replica.apply(change)
        self.changes.append(change)


@contextmanager
def copied(tmp_path: Path, before: Callable[[Journal], None] = lambda _: None) -> Iterator[tuple[Journal, Copying]]:
    """Enter a journal, what it tells of its changes, and a copy that begins with its database."""
    source, target = Home(tmp_path / "source"), Home(tmp_path / "copy")
    with Journal.open(source.path) as journal:
        before(journal)
    target.create()
    with closing(Replica(target)) as replica:
        copy_database(source, tmp_path / "copy.db")
        replica.replace_database(tmp_path / "copy.db")
        copying = Copying(source, replica)
        with Journal.open(source.path, replication=copying) as journal:
            yield journal, copying


def content(home: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return all rows of a database."""
    tables = ("runs", "events", "chat_events", "personas", "outcomes", "sqlite_sequence")
    with closing(sqlite3.connect(home / "journal.db")) as database:
        return {table: database.execute(f"SELECT * FROM {table}").fetchall() for table in tables}  # noqa: S608


def append(journal: Journal, run: str, *events: Event) -> None:
    asyncio.run(journal.append(run, events))


def test_each_change_is_made_in_the_copy_before_it_is_acknowledged(tmp_path: Path) -> None:
    def same() -> None:
        assert content(tmp_path / "copy") == content(tmp_path / "source")

    with copied(tmp_path, lambda journal: append(journal, "earlier", replace(accepted(), run="earlier"))) as (
        journal,
        _,
    ):
        for event in story():
            append(journal, "R", event)
            same()
        asyncio.run(journal.append_chat_event(ROUTED))
        asyncio.run(journal.append_chat_event(ANSWERED))
        same()
        journal.keep_personas(PERSONA)
        same()
        digest = journal.put(b"an artifact")
        assert list_objects(Home(tmp_path / "copy")) == [digest] == list_objects(Home(tmp_path / "source"))
        journal.delete("R", outcomes=[OUTCOME])
        same()
        journal.delete_chats(beyond=0)
        same()
        append(journal, "S", replace(accepted(), run="S"))
        same()
        journal.purge_outcomes()
        same()


def test_a_run_that_the_journal_refuses_is_not_in_the_copy(tmp_path: Path) -> None:
    with copied(tmp_path) as (journal, copying):
        append(journal, "R", accepted())
        with pytest.raises(JournalError, match="refuses events of run R") as error:
            append(journal, "R", accepted())
        assert isinstance(error.value.__cause__, RefusedEvents)
        append(journal, "R", RunFinished(at=2.0, status="done"))
        assert content(tmp_path / "copy") == content(tmp_path / "source")
        assert len(copying.changes) == 2


def test_nothing_is_acknowledged_that_may_not_be_written(tmp_path: Path) -> None:
    with copied(tmp_path) as (journal, copying):
        append(journal, "R", accepted())
        copying.forbidden = "another machine is the head"
        with pytest.raises(JournalError, match="another machine is the head"):
            append(journal, "R", RunFinished(at=2.0, status="done"))
        with pytest.raises(JournalError, match="another machine is the head"):
            journal.keep_personas(PERSONA)
        with pytest.raises(JournalError, match="another machine is the head"):
            journal.delete("R")
        assert [event for _, event in journal.events("R")] == [accepted()]


def test_a_change_that_is_in_the_copied_database_is_not_made_again(tmp_path: Path) -> None:
    with copied(tmp_path) as (journal, copying):
        append(journal, "R", accepted())
        append(journal, "R", RunFinished(at=2.0, status="done"))
        for change in copying.changes:
            copying.replica.apply(change)
        assert content(tmp_path / "copy") == content(tmp_path / "source")


def test_a_copy_that_has_missed_a_change_says_so(tmp_path: Path) -> None:
    with copied(tmp_path) as (journal, copying):
        append(journal, "R", accepted())
        first = copying.changes[-1]
        assert isinstance(first, Appended)
        (events, chats) = first.position
        later = Appended(first.groups, (events + 2, chats))
        with pytest.raises(JournalCorrupt, match="not the same as the head's"):
            copying.replica.apply(later)


def test_objects_that_are_missing_are_named(tmp_path: Path) -> None:
    with copied(tmp_path) as (journal, copying):
        here = journal.put(b"here")
        other = digest_of(b"elsewhere")
        assert copying.replica.missing([here, other]) == [other]
