"""Runs, chats and idempotency keys of the callers of one daemon are told apart."""

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import InputError
from orchestrator.run.journal.errors import JournalError
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.migrations import VERSION
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.record.prior import prior_artifacts
from orchestrator.task.events import RunAccepted, RunFinished
from orchestrator.task.taskir.parse import task_from
from tests.orchestrator.chat_events import ROUTED
from tests.orchestrator.older_journal import downgrade, version_of

STEP = {"id": "S1", "actor": "worker", "action": "a", "outputs": ["o"]}
TASK = task_from({"objective": "x", "task_id": "T", "plan": {"steps": [STEP]}})


async def accept(journal: Journal, run: str, owner: str, key: str | None = None) -> None:
    """Journal a run of an owner, which is cancelled at once."""
    accepted = RunAccepted(at=1.0, run=run, mode="serial", task=TASK, owner=owner, key=key)
    await journal.append(run, [accepted, RunFinished(at=2.0, status="cancelled")])


async def test_each_owner_has_runs_and_keys_of_its_own(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        await accept(journal, "A", "token:ann", "key")
        await accept(journal, "B", "token:ben", "key")
        await accept(journal, "C", "token:ann")
        assert [row.run for row in journal.runs(owner="token:ann")] == ["C", "A"]
        assert [row.run for row in journal.runs(owner="token:ann", before="C")] == ["A"]
        assert [row.owner for row in journal.runs()] == ["token:ann", "token:ben", "token:ann"]
        found = [journal.run_with_key("key", f"token:{name}") for name in ("ann", "ben", "carl")]
        assert found == ["A", "B", None]
        with pytest.raises(JournalError):
            await accept(journal, "D", "token:ann", "key")


async def test_the_runs_of_others_cannot_be_built_on(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        await accept(journal, "A", "token:ann")
        await accept(journal, "B", "token:ben")
        assert journal.run_of_task("T") == "B"
        assert journal.run_of_task("T", "token:ann") == "A"
        for name in ("B", "nothing"):
            with pytest.raises(InputError, match=f"there is no run '{name}'"):
                prior_artifacts(journal, [name], "token:ann")
        for name, owner in (("A", "token:ann"), ("T", "token:ann"), ("B", None)):
            assert prior_artifacts(journal, [name], owner) == {}
        with pytest.raises(InputError, match="there is no run 'T'"):
            prior_artifacts(journal, ["T"], "token:carl")


async def test_each_owner_lists_its_own_chats(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        for number, owner in enumerate(("token:ann", "token:ben", "token:ann")):
            await journal.append_chat_event(replace(ROUTED, chat=f"chatcmpl-{number}", owner=owner))
        assert [record.routed.chat for record in journal.chats(10, "token:ann")] == ["chatcmpl-2", "chatcmpl-0"]
        assert [record.routed.chat for record in journal.chats(1, "token:ben")] == ["chatcmpl-1"]
        assert len(journal.chats(10)) == 3


async def test_a_journal_of_the_version_before_has_runs_of_nobody(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        await accept(journal, "A", "", "key")
    downgrade(tmp_path / "journal.db")
    with JournalReader.open_to_read(tmp_path) as reader:
        assert (reader.run("A").owner, reader.damage()) == ("", [])
    with Journal.open(tmp_path) as journal:
        assert journal.run_with_key("key", "") == "A"
        assert journal.run_with_key("key", "token:ann") is None
        await accept(journal, "B", "token:ann", "key")
    assert version_of(tmp_path / "journal.db") == VERSION
