"""Chats whose model a router has chosen are journaled beside the runs, and kept within bounds."""

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.run.journal import store
from orchestrator.run.journal.chats import ChatRecord, ChatRouted
from orchestrator.run.journal.errors import DiskFull, JournalCorrupt, UnknownChat
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.reader import JournalReader
from orchestrator.service.ratings import rate_chat
from orchestrator.service.retention import Retention, vacuum
from orchestrator.task.events import PromptDigests, RunAccepted, StepExpanded
from tests.orchestrator.chat_events import ANSWERED, RATED, ROUTED
from tests.orchestrator.older_journal import WITHOUT_OWNERS
from tests.orchestrator.service.alone import service_alone, vacuum_alone


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def routed(number: int) -> ChatRouted:
    return replace(ROUTED, chat=f"chatcmpl-{number}", at=float(number))


def read_database(home: Path) -> bytes:
    """Return the bytes of the database and of its log."""
    return b"".join(path.read_bytes() for path in home.glob("journal.db*"))


def chats(home: Path) -> list[str]:
    with JournalReader.open_to_read(home) as journal:
        return [record.routed.chat for record in journal.chats(1000)]


async def test_what_is_noted_of_a_chat_is_there_when_the_journal_is_opened_again(home: Path) -> None:
    with Journal.open(home) as journal:
        journal.note_chat_event(ROUTED)
        journal.note_chat_event(ANSWERED)
        await rate_chat(journal, RATED)
        assert journal.chat("chatcmpl-1") == ChatRecord(ROUTED, (ANSWERED,), (RATED,))
        journal.note_chat_event(routed(2))
    assert chats(home) == ["chatcmpl-2", "chatcmpl-1"]
    with Journal.open(home) as journal:
        numbers, events = zip(*journal.chat_events(), strict=True)
        assert events == (ROUTED, ANSWERED, RATED, routed(2))
        assert [event for _, event in journal.chat_events(numbers[1], 1)] == [RATED]
        assert journal.last_time() == RATED.at
        with pytest.raises(UnknownChat, match="holds no chat 'chatcmpl-9'"):
            await rate_chat(journal, replace(RATED, chat="chatcmpl-9"))
    async with service_alone(home) as service:
        later = await service.rate_chat(RATED.chat, 1.0, RATED.by, RATED.note)
    with JournalReader.open_to_read(home) as journal:
        assert journal.chat("chatcmpl-1").ratings == (RATED, later)


async def test_chats_are_removed_by_age_and_number(home: Path) -> None:
    with Journal.open(home) as journal:
        for number in range(1, 7):
            journal.note_chat_event(routed(number))
            journal.note_chat_event(replace(ANSWERED, chat=f"chatcmpl-{number}"))
        await rate_chat(journal, RATED)
        day = 86_400.0
        assert vacuum(journal, Retention(), 3 + day).chats == 0
        assert vacuum(journal, Retention(days=1, chats=5), 3 + day, dry_run=True).chats == 2
        assert vacuum(journal, Retention(days=1, chats=5), 3 + day).chats == 2, "the second is too old, too"
        assert [record.routed.chat[-1] for record in journal.chats(9)] == ["6", "5", "4", "3"]
        assert vacuum(journal, Retention(chats=1), 3 + day).chats == 3
        assert [event.chat for _, event in journal.chat_events()] == ["chatcmpl-6"] * 2


async def test_nothing_is_left_of_chats_that_are_purged(home: Path) -> None:
    with Journal.open(home) as journal:
        system = journal.put(b"You are careful.")
        await journal.append_chat_event(replace(ROUTED, prompts=PromptDigests(system=system)))
        journal.objects.release([system])
        assert vacuum(journal, Retention(), 1e9).objects == 0, "chats name prompts too"
        journal.note_chat_event(replace(ANSWERED, chat="chatcmpl-0"))  # of one that was removed while it went on
    done = await vacuum_alone(home, Retention(), purge_outcomes=True)
    assert (done.chats, done.objects) == (1, 1)
    with JournalReader.open_to_read(home) as journal:
        assert journal.chat_events() == []
    assert b"translate what" not in read_database(home)


async def test_only_the_newest_chats_are_kept_without_a_vacuum(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MOST_CHATS", 3)
    monkeypatch.setattr(store, "CHATS_BETWEEN_PRUNINGS", 10)
    with Journal.open(home) as journal:
        for number in range(1, 26):
            await journal.append_chat_event(routed(number))
    assert chats(home) == [f"chatcmpl-{number}" for number in range(25, 17, -1)]


async def test_a_journal_of_the_version_before_gets_a_place_for_chats(home: Path) -> None:
    accepted = RunAccepted(at=1.0, run="R", mode="serial", request="x")
    with Journal.open(home) as journal:
        await journal.append("R", [accepted])
    with closing(sqlite3.connect(home / "journal.db", isolation_level=None)) as raw:
        raw.executescript(WITHOUT_OWNERS)
        raw.executescript(
            "DROP INDEX events_by_shape; DROP TABLE chat_events; DELETE FROM schema_version WHERE version > 7"
        )
    with JournalReader.open_to_read(home) as reader:
        assert reader.chats(10) == []
        assert reader.damage() == []
    with Journal.open(home) as journal:
        await journal.append_chat_event(ROUTED)
        assert journal.chat("chatcmpl-1").routed == ROUTED
        assert [event for _, event in journal.events("R")] == [accepted]


async def test_a_changed_event_of_a_chat_is_found(home: Path) -> None:
    with Journal.open(home) as journal:
        await journal.append_chat_event(ROUTED)
    with closing(sqlite3.connect(home / "journal.db", isolation_level=None)) as raw:
        raw.execute("UPDATE chat_events SET body = replace(body, 'coder', 'judge')")
    with JournalReader.open_to_read(home) as reader, pytest.raises(JournalCorrupt, match="of chat chatcmpl-1 is not"):
        reader.chat("chatcmpl-1")
    with pytest.raises(JournalCorrupt, match="event 1 of chat chatcmpl-1 is not what was written"):
        Journal.open(home)


async def test_events_of_chats_are_given_up_while_the_disk_is_full(home: Path) -> None:
    accepted = RunAccepted(at=0.0, run="A", mode="serial", request="fill")
    with Journal.open(home) as journal:
        await journal.append("A", [accepted])
        await journal.append_chat_event(ROUTED)
        database = journal._writer._store._connection
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count = {pages + 2}")
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            filling = [StepExpanded(at=1.0, step="S" * 1000, count=number) for number in range(40)]
            tasks.create_task(journal.append("A", filling))
            while journal.full is None:  # noqa: ASYNC110 - nobody is told, and nobody but a test waits
                await asyncio.sleep(0.01)
            journal.note_chat_event(routed(2))
            with pytest.raises(DiskFull):
                await rate_chat(journal, RATED)
            database.execute(f"PRAGMA max_page_count = {pages + 1000}")
        await rate_chat(journal, RATED)
        assert journal.chat("chatcmpl-1") == ChatRecord(ROUTED, (), (RATED,))
        assert [record.routed.chat for record in journal.chats(9)] == ["chatcmpl-1"]


def test_a_journal_that_is_closed_takes_no_events_of_chats(home: Path) -> None:
    with Journal.open(home) as journal:
        pass
    journal.note_chat_event(ROUTED)
    assert chats(home) == []
