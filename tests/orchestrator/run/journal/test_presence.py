import shutil
from pathlib import Path

import pytest

from orchestrator.run.journal.home import Presence
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.reader import JournalReader
from orchestrator.task.events import RunAccepted

RUN = RunAccepted(at=1.0, run="R", mode="as-planned", request="Say hello.", files=())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a file."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("a")
    return tmp_path / "folder"


def test_everything_is_there_until_it_is_not_and_again_when_it_is_put_back(place: Path) -> None:
    presence = Presence((place, place / "file"))
    assert presence.missing() is None
    (place / "file").rename(place / "elsewhere")
    assert presence.missing() == f"{place / 'file'} is in use, but was moved away"
    (place / "elsewhere").rename(place / "file")
    assert presence.missing() is None
    place.rename(place.with_name("other"))
    assert presence.missing() == f"{place} is in use, but was moved away"
    place.with_name("other").rename(place)
    assert presence.missing() is None
    presence.close()
    place.rename(place.with_name("other"))
    assert presence.missing() is None


@pytest.mark.parametrize("name", ["file", "."])
def test_an_equal_copy_is_something_else(place: Path, name: str) -> None:
    path = place / name
    presence = Presence((path,))
    shutil.copytree(place, place.with_name("copy"))
    shutil.rmtree(place)
    assert presence.missing() == f"{path} is in use, but was deleted"
    shutil.copytree(place.with_name("copy"), place)
    assert presence.missing() == f"{path} is in use, but something else was put in its place"
    presence.close()


def test_what_comes_later_is_watched_from_then_on(place: Path) -> None:
    presence = Presence((place / "later",))
    assert presence.missing() is None
    (place / "later").mkdir()
    assert presence.missing() is None
    (place / "later").rmdir()
    assert presence.missing() == f"{place / 'later'} is in use, but was deleted"
    presence.close()


@pytest.mark.parametrize("name", ["journal.db", "journal.db-wal", "journal.db-shm", "lock", "objects", "runs", ""])
async def test_a_journal_names_what_is_not_in_its_place(tmp_path: Path, name: str) -> None:
    home = tmp_path / "home"
    journal = Journal.open(home)
    await journal.append("R", [RUN])
    journal.put(b"an object")
    (home / "runs").mkdir(exist_ok=True)
    assert journal.misplaced is None
    (home / name).rename(tmp_path / "elsewhere")
    assert f"{home / name} is in use, but was moved away; accepted: the original put back" in (journal.misplaced or "")
    (tmp_path / "elsewhere").rename(home / name)
    assert journal.misplaced is None
    journal.close()


@pytest.mark.parametrize("names", [["journal.db"], ["journal.db", "journal.db-wal", "journal.db-shm"]])
@pytest.mark.parametrize("deleted", [True, False])
async def test_no_event_is_lost_with_the_path_to_the_journal(
    tmp_path: Path, names: list[str], *, deleted: bool
) -> None:
    home = tmp_path / "home"
    journal = Journal.open(home)
    await journal.append("R", [RUN])
    for name in names:
        (home / name).unlink() if deleted else (home / name).rename(tmp_path / name)
    await journal.append("S", [RunAccepted(at=2.0, run="S", mode="as-planned", request="Again.", files=())])
    journal.close()
    Journal.open(home).close()
    with JournalReader.open_to_read(home) as reader:
        assert [row.run for row in reader.runs()] == ["S", "R"]
        assert reader.damage() == []


async def test_a_copy_is_left_in_no_other_folder(tmp_path: Path) -> None:
    home = tmp_path / "home"
    journal = Journal.open(home)
    home.rename(tmp_path / "moved")
    home.mkdir()
    journal.close()
    assert list(home.iterdir()) == []
    Journal.open(tmp_path / "moved").close()
