"""Several files are written into a folder all together or not at all, and never anything outside of it."""

import fcntl
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from orchestrator.cli.changes import RECORD, NewFile, WriteFailed, WrittenFile, write_files
from orchestrator.errors import InputError
from tests.orchestrator.cli.kill_writes import AFTER, BEFORE, CHANGES, NOBODY, contents, make, version

ROOT = Path(__file__).resolve().parents[3]


def in_process(folder: Path, *arguments: str) -> Any:
    """Return what the program prints that writes into the folder in processes of its own."""
    command = [sys.executable, "-m", "tests.orchestrator.cli.kill_writes", str(folder), *arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]
    return json.loads(ended.stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files of a user."""
    make(tmp_path / "user")
    return tmp_path / "user"


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A folder in memory if there is such a place, so that each of the many syncs is quick."""
    memory = "/dev/shm"  # noqa: S108 - what is killed is a process, not the machine
    with TemporaryDirectory(prefix="writes-", dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name) / "user"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with room for little more than what is written to it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", "size=64k"]
    mounted = subprocess.run(["mount", *options, "tmpfs", folder], capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_new_versions_and_new_files_are_written_and_nothing_else_is_left(folder: Path) -> None:
    (folder / "README.md").chmod(0o750)
    recovered, written = write_files(folder, CHANGES, "R")
    assert recovered == ""
    assert written == tuple(WrittenFile(change.name, change.name not in BEFORE) for change in CHANGES)
    assert contents(folder) == AFTER
    assert stat.S_IMODE((folder / "README.md").stat().st_mode) == 0o750
    assert write_files(folder, CHANGES, "R") == ("", ())


def test_without_an_expected_version_any_file_is_replaced(folder: Path) -> None:
    write_files(folder, [NewFile("README.md", b"new"), NewFile("S2[0]", b"")], "R")
    assert contents(folder) == {**BEFORE, "README.md": "new", "S2[0]": ""}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (version("README.md", "older", "new"), "README.md: was changed since the run read it"),
        (version("gone.md", "old", "new"), "gone.md: was deleted since the run read it"),
        (version("gone/x.md", "old", "new"), "gone/x.md: was deleted since the run read it"),
        (version("mine.txt", None, "new"), "mine.txt: exists, and did not when the run wrote its output"),
        (version("readme.md", None, "new"), "readme.md: there is 'README.md', which some file systems take for it"),
        (version("Docs/x.md", None, "new"), "Docs: there is 'docs', which some file systems take for it"),
        (version("../out.txt", None, "x"), "is no name of a file in the folder"),
        (version("/out.txt", None, "x"), "is no name of a file in the folder"),
        (version("docs", None, "x"), "docs: is a link or no regular file"),
        (version("mine.txt/x", None, "x"), "mine.txt: is a link or no folder"),
        (version(f"{RECORD}-x", None, "x"), "is no name of a file in the folder"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(folder: Path, change: NewFile, message: str) -> None:
    before = contents(folder)
    with pytest.raises(InputError) as caught:
        write_files(folder, [version("slugify.py", None, "code"), change], "R")
    assert message in str(caught.value)
    assert contents(folder) == before
    assert contents(folder.parent) == {f"user/{name}": text for name, text in before.items()}


def test_names_that_differ_only_in_case_or_accents_are_refused(folder: Path) -> None:
    with pytest.raises(InputError, match=r"differs from 'a/B\.md' only in case or accents"):
        write_files(folder, [version("a/B.md", None, "x"), version("a/b.md", None, "y")], "R")
    with pytest.raises(InputError, match="only in case or accents"):
        write_files(folder, [version("caf\u00e9", None, "x"), version("cafe\u0301", None, "y")], "R")
    with pytest.raises(InputError, match="would be a file and a folder"):
        write_files(folder, [version("a/b", None, "x"), version("a", None, "y")], "R")


def test_a_name_that_looks_the_same_replaces_the_file_of_that_name(folder: Path) -> None:
    (folder / "cafe\u0301.md").write_text("old")
    write_files(folder, [version("caf\u00e9.md", "old", "new")], "R")
    assert [path.name for path in folder.glob("caf*")] == ["cafe\u0301.md"]
    assert (folder / "cafe\u0301.md").read_text() == "new"


def test_links_in_the_folder_are_not_followed(folder: Path) -> None:
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "victim.txt").write_text("safe")
    (folder / "sub").symlink_to(elsewhere)
    (folder / "victim.txt").symlink_to(elsewhere / "victim.txt")
    (folder / "dangling").symlink_to(elsewhere / "nothing")
    before = contents(folder.parent)
    for name in ("sub/victim.txt", "sub/new.txt", "victim.txt", "dangling"):
        for change in (NewFile(name, b"x"), version(name, None, "x"), version(name, "safe", "x")):
            with pytest.raises(InputError, match="link"):
                write_files(folder, [version("README.md", "old", "new"), change], "R")
    assert contents(folder.parent) == before


def test_a_folder_behind_a_link_is_written_to(folder: Path) -> None:
    (folder.parent / "link").symlink_to(folder)
    write_files(folder.parent / "link", CHANGES, "R")
    assert contents(folder) == AFTER


def test_what_is_read_only_is_refused(folder: Path) -> None:
    before = contents(folder)
    (folder / "README.md").chmod(0o444)
    with pytest.raises(InputError, match=r"README\.md: is read-only"):
        write_files(folder, CHANGES, "R")
    assert contents(folder) == before


@pytest.mark.parametrize("locked", [".", "docs"])
def test_a_user_without_the_right_to_write_changes_nothing(locked: str) -> None:
    with TemporaryDirectory() as name:  # others may not enter those of pytest
        folder = Path(name) / "user"
        Path(name).chmod(0o755)
        make(folder)
        if os.geteuid() == 0:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, NOBODY, NOBODY)
        (folder / locked).chmod(0o555)
        assert "is in a folder that cannot be written to" in in_process(folder, "--refused")
        (folder / locked).chmod(0o755)
        assert contents(folder) == BEFORE


def test_a_file_that_may_not_become_so_large_changes_nothing(folder: Path) -> None:
    before = contents(folder)
    refusal = in_process(folder, "--most-bytes", "4096")
    assert "large.txt: cannot be written: File too large; nothing was changed" in refusal
    assert contents(folder) == before


@pytest.mark.parametrize("size", [20_000, 40_000, 200_000])
def test_a_full_disk_changes_nothing(small_disk: Path, size: int) -> None:
    (small_disk / "README.md").write_text("old")
    (small_disk / "b.txt").write_text("b")
    (small_disk / "ballast").write_bytes(bytes(16_000))
    before = contents(small_disk)
    large = "x" * size
    with pytest.raises(WriteFailed, match=r"No space left on device; nothing was changed"):
        write_files(
            small_disk,
            [version("README.md", "old", "new"), version("n/a", None, large), version("b.txt", "b", large)],
            "R",
        )
    assert contents(small_disk) == before
    assert not (small_disk / "n").exists()


def test_a_disk_without_room_for_the_record_is_left_as_it_was(small_disk: Path) -> None:
    free = os.statvfs(small_disk)
    (small_disk / "ballast").write_bytes(bytes(free.f_bavail * free.f_bsize))
    with pytest.raises(WriteFailed, match="nothing was changed"):
        write_files(small_disk, [version("a.txt", None, "new")], "R")
    assert [file.name for file in small_disk.iterdir()] == ["ballast"]


def test_a_file_system_that_can_only_be_read_changes_nothing(small_disk: Path) -> None:
    (small_disk / "README.md").write_text("old")
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises((InputError, WriteFailed), match="cannot be written"):
        write_files(small_disk, [version("README.md", "old", "new")], "R")
    assert contents(small_disk) == {"README.md": "old"}


def test_two_processes_do_not_write_at_once(folder: Path) -> None:
    other = os.open(folder, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(InputError, match="another process is writing results into it"):
        write_files(folder, CHANGES, "R")
    os.close(other)
    write_files(folder, CHANGES, "R")
    assert contents(folder) == AFTER


@pytest.mark.parametrize(
    "text",
    [
        "no record",
        '{"run": "R", "token": "../../aaaaaa", "folders": [], "files": []}',
        '{"run": "R", "token": "aaaaaaaaaaaa", "folders": ["../x"], "files": []}',
        '{"run": "R", "token": "aaaaaaaaaaaa", "folders": [], "files": [{"name": "/etc/x", "new": "", "old": ""}]}',
    ],
)
def test_a_record_that_no_process_has_left_is_refused(folder: Path, text: str) -> None:
    (folder / RECORD).write_text(text)
    before = contents(folder)
    with pytest.raises(InputError, match="is no record of what was being written here"):
        write_files(folder, CHANGES, "R")
    assert contents(folder) == before


def test_a_process_that_is_killed_at_any_write_leaves_all_or_nothing_to_the_next(in_memory: Path) -> None:
    counts = in_process(in_memory, "--twice", "16")
    assert counts["kills"] > 40
    assert counts["second_kills"] > 10


def test_an_interrupted_process_is_undone_before_anything_else_is_written(folder: Path) -> None:
    in_process(folder, "--half")
    recovered, written = write_files(folder, [version("other.txt", None, "other")], "R2")
    assert recovered == f"{folder}: writing the results of run R was interrupted, and has been undone"
    assert written == (WrittenFile("other.txt", is_new=True),)
    assert contents(folder) == {**BEFORE, "other.txt": "other"}


@pytest.mark.parametrize("edited", ["README.md", "docs/guide.md"])
def test_what_the_user_changes_after_an_interruption_is_kept(folder: Path, edited: str) -> None:
    in_process(folder, "--half")
    (folder / edited).write_text("edited")
    if edited == "docs/guide.md":  # it was not replaced yet
        assert write_files(folder, [NewFile("other.txt", b"")], "R2")[0].endswith("has been undone")
        assert contents(folder) == {**BEFORE, edited: "edited", "other.txt": ""}
        return
    with pytest.raises(WriteFailed, match=r"README\.md was changed meanwhile; it is left as it is") as caught:
        write_files(folder, [NewFile("other.txt", b"")], "R2")
    left = contents(folder)
    (old,) = [name for name in left if name.startswith(RECORD)]
    assert f"its old version is {old} next to it" in str(caught.value)
    assert left == {**BEFORE, edited: "edited", old: "old"}
    write_files(folder, [NewFile("other.txt", b"")], "R2")


@pytest.mark.crash
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("arguments", [(), ("--no-links",)])
def test_the_next_process_may_be_killed_at_any_write_too(in_memory: Path, arguments: tuple[str, ...]) -> None:
    assert in_process(in_memory, *arguments)["second_kills"] > 400
