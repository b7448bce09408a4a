"""What an attempt has seen of the user's files is recorded, as it was when it was read first."""

from pathlib import Path

import pytest

from orchestrator.run.journal.objects import digest_of
from orchestrator.run.steps.files import MOST_READS, SeenFiles, UnreadableFile
from orchestrator.run.steps.tools.workspace import Workspace


def test_the_first_version_that_is_read_counts_with_all_of_its_bytes(tmp_path: Path) -> None:
    seen, file = SeenFiles(), tmp_path / "a.txt"
    file.write_bytes(b"\xef\xbb\xbfold")
    assert seen.read_text(tmp_path, "a.txt") == "old"
    file.write_text("new")
    assert seen.read_text(tmp_path, "a.txt") == "new"
    assert seen.digests == {"a.txt": digest_of(b"\xef\xbb\xbfold")}


def test_a_file_that_is_no_text_was_seen_too(tmp_path: Path) -> None:
    seen = SeenFiles()
    (tmp_path / "a.bin").write_bytes(b"\xff")
    with pytest.raises(UnreadableFile, match="is not UTF-8"):
        seen.read_text(tmp_path, "a.bin")
    assert seen.digests == {"a.bin": digest_of(b"\xff")}


def test_originals_are_files_or_none_and_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    seen = SeenFiles()
    (tmp_path / "a.bin").write_bytes(b"\xff")
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to("a.bin")
    seen.keep_originals(tmp_path, ["a.bin", "sub", "link", "new.txt", "sub/new.txt", "none/new.txt"])
    assert seen.originals == {"a.bin": b"\xff", "new.txt": None, "sub/new.txt": None, "none/new.txt": None}


@pytest.mark.parametrize(
    ("original", "written", "new"),
    [
        ("a\nb\n", "a\nc", "a\nc\n"),
        ("a\nb", "a\nc", "a\nc"),
        ("a\r\nb\r\n", "a\nc", "a\r\nc\r\n"),
        ("a\r\nb\r\n", "a\r\nc\r\n", "a\r\nc\r\n"),
        ("a\r\nb\n", "a\nc", "a\nc\n"),
        ("a\n", "", ""),
        (None, "a\nc", "a\nc"),
    ],
)
def test_lines_of_a_new_version_end_as_in_the_original(
    tmp_path: Path, original: str | None, written: str, new: str
) -> None:
    seen = SeenFiles()
    if original is not None:
        (tmp_path / "a.txt").write_bytes(original.encode())
    seen.keep_originals(tmp_path, ["a.txt"])
    assert seen.with_line_ends({"a.txt": written.encode(), "b.txt": b"x"}) == {"a.txt": new.encode(), "b.txt": b"x"}


def test_an_attempt_records_the_first_thousand_files_that_it_reads() -> None:
    seen = SeenFiles()
    for number in range(MOST_READS + 1):
        seen.add(f"{number}.txt", digest_of(b""))
    assert [*seen.digests][-1] == f"{MOST_READS - 1}.txt"


def test_what_a_tool_reads_in_the_folder_was_seen(tmp_path: Path) -> None:
    seen = SeenFiles()
    (tmp_path / "a.txt").write_text("of a")
    (tmp_path / "b.txt").write_text("of b")
    workspace = Workspace(tmp_path, ["a.txt", "b.txt", "c.txt"], {"b.txt": "an input"}, ["c.txt"], seen)
    workspace.write("c.txt", "written")
    assert workspace.texts() == {"a.txt": "of a", "b.txt": "an input", "c.txt": "written"}
    assert seen.digests == {"a.txt": digest_of(b"of a")}
