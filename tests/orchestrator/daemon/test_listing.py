"""Which files of a folder a run may read."""

import os
from pathlib import Path

import pytest

from orchestrator.daemon.job import list_files
from orchestrator.errors import InputError


def test_files_are_listed_that_a_document_can_name(tmp_path: Path) -> None:
    long = "x" * 101
    for name in ("b.txt", "a.txt", ".hidden", "new\nline", "sub/c d.txt", f"{long}/{long}", "bell\a/e.txt", "\u2028"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (tmp_path / os.fsdecode(b"caf\xe9.txt")).touch()
    (tmp_path / os.fsdecode(b"f\xe9")).mkdir()
    (tmp_path / os.fsdecode(b"f\xe9/in.txt")).touch()
    (tmp_path / "link.txt").symlink_to("a.txt")
    assert list_files(tmp_path) == ("a.txt", "b.txt", "sub/c d.txt")


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a folder"):
        list_files(tmp_path / "none")
