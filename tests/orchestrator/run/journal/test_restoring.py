import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.reader import JournalReader
from orchestrator.task.events import RunAccepted
from tests.orchestrator.older_journal import WITHOUT_OWNERS

ACCEPTED = RunAccepted(at=1.0, run="R", mode="serial", request="a test")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


async def test_restoring_that_was_cut_off_is_finished(home: Path) -> None:
    with Journal.open(home) as journal:
        await journal.append("R", [ACCEPTED])
    (home / "journal.db").rename(home / "journal.db.restored")
    (home / "journal.db-wal").write_bytes(b"the log of the database that was replaced")
    with Journal.open(home) as journal:
        assert [event for _, event in journal.events("R")] == [ACCEPTED]
        assert journal.damage() == []
    assert (home / "replaced-wal").read_bytes() == b"the log of the database that was replaced"


async def test_restoring_that_had_not_begun_changes_nothing(home: Path) -> None:
    with Journal.open(home) as journal:
        await journal.append("R", [ACCEPTED])
    (home / "journal.db.restored").write_bytes(b"half a copy")
    with Journal.open(home) as journal:
        assert [event for _, event in journal.events("R")] == [ACCEPTED]


async def test_database_of_an_earlier_version_can_be_read_and_checked(home: Path) -> None:
    with Journal.open(home) as journal:
        await journal.append("R", [ACCEPTED])
    with closing(sqlite3.connect(home / "journal.db", isolation_level=None)) as raw:
        raw.executescript(WITHOUT_OWNERS)
        raw.execute("DROP TABLE personas")
        raw.executescript("DROP TABLE chat_events; DROP TABLE outcomes")
        raw.executescript("DROP INDEX events_by_task; DROP INDEX events_by_shape")
        raw.execute("ALTER TABLE events DROP COLUMN checksum")
        raw.execute("DELETE FROM schema_version WHERE version > 3")
    with JournalReader.open_to_read(home) as reader:
        assert [event for _, event in reader.events("R")] == [ACCEPTED]
        assert reader.damage() == []
    with closing(sqlite3.connect(home / "journal.db")) as raw:
        assert raw.execute("SELECT max(version) FROM schema_version").fetchone() == (3,), "readers change nothing"
