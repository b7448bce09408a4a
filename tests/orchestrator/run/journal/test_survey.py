import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.run.journal.errors import JournalCorrupt
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.reader import JournalReader
from orchestrator.task.events import RunAccepted, StepExpanded
from tests.orchestrator.older_journal import WITHOUT_OWNERS

RUNS = 8
EVENTS = 60


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder of runs that take some pages each, one after the other. No test may change it."""
    folder = tmp_path_factory.mktemp("undamaged") / "home"
    asyncio.run(_record(folder))
    return folder


async def _record(folder: Path) -> None:
    with Journal.open(folder) as journal:
        for run in range(RUNS):
            await journal.append(
                f"R{run}", [RunAccepted(at=float(run), run=f"R{run}", mode="serial", request="a test")]
            )
            for number in range(EVENTS):
                await journal.append(f"R{run}", [StepExpanded(at=run + 0.5, step="S" * 300, count=1000 + number)])


@pytest.fixture
def home(undamaged: Path, tmp_path: Path) -> Path:
    """A copy of the undamaged state folder."""
    return Path(shutil.copytree(undamaged, tmp_path / "home"))


def page_of(home: Path, run: str, count: int) -> tuple[int, int]:
    """Return where the page of an event begins in the file, and where in it the event's count is."""
    data = (home / "journal.db").read_bytes()
    with closing(sqlite3.connect(home / "journal.db")) as raw:
        (size,) = raw.execute("PRAGMA page_size").fetchone()
        asked = "SELECT body FROM events WHERE run = ? AND body ->> '$.count' = ?"
        (body,) = raw.execute(asked, (run, count)).fetchone()
        starts = [start for start in range(0, len(data), size) if _holds(data[start : start + size], run, body)]
    assert len(starts) == 1
    return starts[0], data.index(f'"count":{count}'.encode(), starts[0])


def _holds(page: bytes, run: str, body: str) -> bool:
    """Say whether a leaf of a table holds an event of a run. Its kind and run are stored right before its body."""
    return page[:1] == b"\x0d" and f"{run}".encode() in page and body.encode() in page


def spoil(home: Path, place: int, new: bytes) -> None:
    with (home / "journal.db").open("r+b") as file:
        file.seek(place)
        file.write(new)


async def test_torn_page_is_refused_with_what_can_be_read(home: Path) -> None:
    start, _ = page_of(home, "R3", 1030)
    spoil(home, start, bytes(2048))
    with pytest.raises(JournalCorrupt) as caught:
        Journal.open(home)
    told = str(caught.value)
    assert "the table events cannot be read whole; all events can be read of 7 of 8 runs, not of R3;" in told
    assert "`orchestrator restore NAME`" in told
    with JournalReader.open_to_read(home) as reader:
        assert reader.damage()
        assert len(reader.events("R5")) == EVENTS + 1
        with pytest.raises(JournalCorrupt):
            reader.events("R3")


async def test_page_that_only_looks_whole_is_refused(home: Path) -> None:
    _, place = page_of(home, "R3", 1030)
    spoil(home, place + len('"count":'), b"9999")
    with closing(sqlite3.connect(home / "journal.db")) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with pytest.raises(JournalCorrupt, match=r"event \d+ of run R3 is not what .* 7 of 8 runs, not of R3;"):
        Journal.open(home)
    with JournalReader.open_to_read(home) as reader:
        (damage,) = reader.damage()
        assert "of run R3" in damage
        with pytest.raises(JournalCorrupt, match="of run R3 is not what was written"):
            reader.events("R3")


async def test_text_that_is_none_any_more_is_damage(home: Path) -> None:
    _, place = page_of(home, "R3", 1030)
    spoil(home, place, b"\xff\xff")
    with pytest.raises(JournalCorrupt, match="not of R3;"):
        Journal.open(home)


async def test_torn_list_of_runs_still_leaves_their_events(home: Path) -> None:
    with closing(sqlite3.connect(home / "journal.db")) as raw:
        (root,) = raw.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'runs'").fetchone()
        (size,) = raw.execute("PRAGMA page_size").fetchone()
    spoil(home, (root - 1) * size, bytes(2048))
    with pytest.raises(
        JournalCorrupt, match="the table runs cannot be read whole; all events of all 8 runs can be read"
    ):
        Journal.open(home)


async def test_torn_database_of_an_earlier_version_is_left_as_it_is(home: Path) -> None:
    with closing(sqlite3.connect(home / "journal.db")) as raw:
        raw.executescript(WITHOUT_OWNERS)
        raw.executescript(
            """
            DROP TABLE chat_events; DROP TABLE personas; DROP TABLE outcomes;
            DROP INDEX events_by_task; DROP INDEX events_by_shape;
            DELETE FROM schema_version WHERE version >= 5
            """
        )
        (root,) = raw.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'runs'").fetchone()
        (size,) = raw.execute("PRAGMA page_size").fetchone()
    spoil(home, (root - 1) * size, bytes(2048))
    damaged = (home / "journal.db").read_bytes()
    with pytest.raises(JournalCorrupt, match="the table runs cannot be read whole"):
        Journal.open(home)
    assert (home / "journal.db").read_bytes() == damaged


async def test_refused_database_is_left_to_its_next_owner(home: Path) -> None:
    start, _ = page_of(home, "R3", 1030)
    whole = (home / "journal.db").read_bytes()
    spoil(home, start, bytes(2048))
    with pytest.raises(JournalCorrupt):
        Journal.open(home)
    (home / "journal.db").write_bytes(whole)
    with Journal.open(home) as journal:
        assert journal.damage() == []
