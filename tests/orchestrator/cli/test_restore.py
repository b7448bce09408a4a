"""`orchestrator restore` without a daemon."""

import asyncio
from pathlib import Path

import pytest

from orchestrator.run.journal.journal import Journal
from orchestrator.service.backup import make_backup
from orchestrator.task.events import RunAccepted
from tests.orchestrator.cli.cli_command import Cli


@pytest.fixture
def backup(home: Path) -> str:
    """The name of a backup with one run."""

    async def write() -> str:
        with Journal.open(home) as journal:
            await journal.append("R", [RunAccepted(at=1.0, run="R", mode="serial", request="x")])
            return make_backup(journal).name

    return asyncio.run(write())


def test_a_damaged_journal_is_replaced_by_a_backup(command: Cli, home: Path, backup: str) -> None:
    (home / "journal.db").write_bytes(b"no database")
    refused = command("vacuum")
    assert refused.code == 1
    assert "journal.db: damaged: " in refused.err
    assert command("restore", backup, "--json").json == {"restored": backup}
    assert [row["run_id"] for row in command("runs", "--json").json["runs"]] == ["R"]
    again = command("restore", backup).out
    assert again == f"all runs are those of backup {backup}; the journal before is kept in {home / 'backups'}\n"
    assert (min((home / "backups").glob("replaced-*")) / "journal.db").read_bytes() == b"no database"


def test_nothing_is_restored_while_another_process_owns_the_folder(command: Cli, home: Path, backup: str) -> None:
    with Journal.open(home):
        refused = command("restore", backup)
    assert refused.code == 1
    assert "owns this state folder; stop it" in refused.err
    missing = command("restore", "20200101-000000")
    assert (missing.code, "'20200101-000000' was not found" in missing.err) == (2, True)
