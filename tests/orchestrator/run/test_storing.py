"""What an attempt has stored is held until it is named, and no longer when the attempt ends without a success."""

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.run.effects import RunEffects
from orchestrator.run.journal.errors import JournalError
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.objects import digest_of
from orchestrator.run.scheduler.run import fresh_state
from orchestrator.run.steps.files import NO_FILE, SeenFiles
from orchestrator.run.updates import Broadcast
from orchestrator.task.events import RunAccepted


def effects_on(journal: Journal) -> RunEffects:
    """Return the effects of a run, of which only the journal is there."""
    accepted = RunAccepted(at=1.0, run="R", mode="as-planned", request="x")
    return RunEffects(accepted, fresh_state(accepted), SimpleNamespace(journal=journal), Broadcast())  # type: ignore[arg-type]


async def test_what_could_not_be_published_is_let_go(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        with pytest.raises(JournalError, match="cannot be published"):
            await effects_on(journal)._store({"a": b"a file", "a/b": b"in a folder of that name"}, publishes=True)
        assert len(journal.sweep()) == 2


async def test_what_a_cancelled_attempt_stores_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_go_on = threading.Event(), threading.Event()
    with Journal.open(tmp_path) as journal:
        put = journal.put

        def slow(data: bytes) -> str:
            begun.set()
            assert may_go_on.wait(60)
            return put(data)

        monkeypatch.setattr(journal, "put", slow)
        storing = asyncio.create_task(effects_on(journal)._store({"o": b"text"}))
        await asyncio.to_thread(begun.wait)
        storing.cancel()
        await asyncio.sleep(0.1)
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await storing
        monkeypatch.undo()
        assert len(journal.sweep()) == 1


async def test_what_was_stored_is_held(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        assert (await effects_on(journal)._store({"o": b"text"})).keys() == {"o"}
        assert journal.sweep() == []


async def test_originals_are_held_with_the_outputs_and_let_go_with_them(tmp_path: Path) -> None:
    seen = SeenFiles()
    seen.originals |= {"a": b"of the user", "new": None}
    with Journal.open(tmp_path) as journal:
        effects = effects_on(journal)
        originals = await effects._store_originals(seen)
        assert originals == {"a": digest_of(b"of the user"), "new": NO_FILE}
        assert journal.sweep() == []
        with pytest.raises(JournalError, match="cannot be published"):
            await effects._store({"a": b"a file", "a/b": b"in a folder of that name"}, originals, publishes=True)
        assert len(journal.sweep()) == 3
