"""Uploaded files: they are there until they are deleted, and take no more room than they may."""

from pathlib import Path

import pytest

from orchestrator.run.journal.errors import JournalError
from orchestrator.run.journal.home import Home
from orchestrator.service import uploaded_files
from orchestrator.service.configuration import FolderSettings
from orchestrator.service.errors import FolderFull
from orchestrator.service.uploaded_files import UnknownFile, UploadedFiles

SETTINGS = FolderSettings(min_free_bytes=0, max_uploaded_bytes=10)


def opened(home: Path, settings: FolderSettings = SETTINGS) -> UploadedFiles:
    return UploadedFiles(home, lambda: settings)


def test_files_are_kept_with_their_descriptions(tmp_path: Path) -> None:
    files = opened(tmp_path)
    assert files.all() == []
    first, second = files.store("a.txt", "user_data", b"one"), files.store("a.txt", "batch", b"\0\xff")
    assert (first.name, first.purpose, first.bytes) == ("a.txt", "user_data", 3)
    again = opened(tmp_path)
    assert again.all() == [second, first]
    assert (again.find(first.id), again.read(second.id)) == (first, b"\0\xff")
    again.delete(first.id)
    assert files.all() == [second]
    for ask in (files.find, files.read, files.delete):
        with pytest.raises(UnknownFile, match=first.id):
            ask(first.id)
    assert [path.stem for path in Home(tmp_path).files.glob("*")] == [second.id] * 2


@pytest.mark.parametrize("wrong", ["", "file-1", "../api", f"file-{7:024x}"])
def test_an_id_of_nothing_is_refused(tmp_path: Path, wrong: str) -> None:
    files = opened(tmp_path)
    for ask in (files.find, files.read, files.delete):
        with pytest.raises(UnknownFile, match="there is no file"):
            ask(wrong)


def test_a_file_that_there_is_no_room_for_is_refused(tmp_path: Path) -> None:
    files = opened(tmp_path)
    kept = files.store("a", "user_data", b"12345678")
    with pytest.raises(FolderFull, match="the file has 3 bytes, and uploaded files take 8 of the 10 bytes"):
        files.store("b", "user_data", b"123")
    files.store("b", "user_data", b"12")
    files.delete(kept.id)
    assert files.store("c", "user_data", b"12345678").bytes == 8
    with pytest.raises(FolderFull, match="bytes are free on the disk"):
        opened(tmp_path, FolderSettings(min_free_bytes=1 << 60)).store("d", "user_data", b"")


def test_there_are_not_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploaded_files, "MAX_FILES", 2)
    files = opened(tmp_path)
    made = [files.store(name, "user_data", b"") for name in "ab"]
    with pytest.raises(FolderFull, match="2 files are uploaded"):
        files.store("c", "user_data", b"")
    files.delete(made[0].id)
    assert files.store("c", "user_data", b"").name == "c"


def test_a_description_that_cannot_be_read_is_no_file(tmp_path: Path) -> None:
    files = opened(tmp_path)
    kept = files.store("a", "user_data", b"1")
    (Home(tmp_path).files / f"{kept.id}.json").write_text("{}")
    assert files.all() == []
    with pytest.raises(UnknownFile):
        files.read(kept.id)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    Home(tmp_path).files.write_text("")
    with pytest.raises(JournalError):
        opened(tmp_path).store("a", "user_data", b"1")
