"""Backups keep the order in which they were made, and each other's contents, whatever the clock does."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.journal.errors import JournalError
from orchestrator.run.journal.journal import Journal
from orchestrator.service.backup import NAME, backups, make_backup, next_name, restore_backup

NOON = "20260101-120000"


@given(st.lists(st.sampled_from(["20250101-000000", NOON, "20260101-120001", "20991231-235959"])))
def test_every_backup_gets_a_name_of_its_own(times: list[str]) -> None:
    names = ["replaced-20990101-000000-5", "unfinished-1-2"]
    for now in times:
        name = next_name(names, now)
        assert name not in names
        assert NAME.match(name)
        names.append(name)


def test_backups_are_in_the_order_in_which_they_were_made(tmp_path: Path) -> None:
    made: list[str] = []
    for now in [*[NOON] * 12, "20250101-000000", "20260101-120001", NOON, "20260101-120002"]:
        made.append(next_name(made, now))
        (tmp_path / "backups" / made[-1]).mkdir(parents=True)
        (tmp_path / "backups" / made[-1] / "journal.db").touch()
    assert [one.name for one in backups(tmp_path)] == made
    assert made[-4:] == [f"{NOON}-13", "20260101-120001", "20260101-120001-2", "20260101-120002"]


def test_a_backup_comes_after_those_that_were_made_before_the_clock_was_set_back(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        ahead = tmp_path / "backups" / "29991231-235959"
        (tmp_path / "backups" / make_backup(journal).name).rename(ahead)
        kept = (ahead / "journal.db").read_bytes()
        names = [make_backup(journal).name for _ in range(2)]
    assert [one.name for one in backups(tmp_path)] == [ahead.name, *names] == [ahead.name, f"{ahead.name}-2", names[1]]
    assert (ahead / "journal.db").read_bytes() == kept


def test_a_damaged_object_comes_back_with_a_backup(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        digest = journal.put(b"what was made")
        path = journal.objects.path(digest)
        name = make_backup(journal).name
        path.chmod(0o600)
        path.write_bytes(b"what rotted")
    restore_backup(tmp_path, name)
    with Journal.open(tmp_path) as journal:
        assert journal.get(digest) == b"what was made"


def test_what_a_killed_process_left_of_a_backup_goes_with_the_next_one(tmp_path: Path) -> None:
    left = [tmp_path / "backups" / f"unfinished-{name}" for name in (f"{os.getpid()}-1", "4194305-1", "5", "x")]
    for folder in left:
        folder.mkdir(parents=True)
    with Journal.open(tmp_path) as journal:
        name = make_backup(journal).name
    assert [path.name for path in (tmp_path / "backups").iterdir()] == [name]


def test_a_folder_that_holds_no_database_is_reported(tmp_path: Path) -> None:
    (tmp_path / "backups" / NOON).mkdir(parents=True)
    with pytest.raises(JournalError, match="cannot be read: No such file"):
        backups(tmp_path)
