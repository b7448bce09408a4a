"""Kill processes that write files into a folder, at each of their writes, and check that all or none was written.

This runs as a program of its own, with one thread, so that it can fork: `python -m tests.orchestrator.cli.kill_writes
FOLDER`. It prints one JSON object with how many processes it has killed, and raises AssertionError.
"""

import argparse
import errno
import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from orchestrator.cli.changes import NewFile, WriteFailed, write_files
from orchestrator.errors import InputError
from orchestrator.run.journal.objects import digest_of
from orchestrator.run.steps.files import NO_FILE

NOBODY = 65534
BEFORE = {"README.md": "old", "docs/guide.md": "old guide", "mine.txt": "mine"}
AFTER = {
    "README.md": "new",
    "docs/de/größe.md": "neu",
    "docs/guide.md": "new guide",
    "mine.txt": "mine",
    "slugify.py": "code",
}
OTHER = "other.txt"
WRITES = frozenset({"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.chown"})


def make(folder: Path) -> None:
    """Make the folder of a user, in the place of what there was."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in BEFORE.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def contents(folder: Path) -> dict[str, str]:
    """Return the contents of all files under a folder, hidden ones too; a link is shown as an arrow."""
    return {
        str(path.relative_to(folder)): f"-> {path.readlink()}" if path.is_symlink() else path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def version(name: str, before: str | None, after: str) -> NewFile:
    """Return the new version of a file that had the text `before`; None for a new file."""
    return NewFile(name, after.encode(), NO_FILE if before is None else digest_of(before.encode()))


CHANGES = [version(name, BEFORE.get(name), text) for name, text in AFTER.items() if name != "mine.txt"]


def write(folder: Path) -> None:
    """Write all changes."""
    write_files(folder, CHANGES, "R")


def write_other(folder: Path) -> None:
    """Write another file, as another run does."""
    write_files(folder, [version(OTHER, None, "other")], "R2")


def child(work: Callable[[], None]) -> int:
    """Do `work` in a child, and return how that ended, as `os.waitpid` says."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(process, 0)[1]


def killed_at(work: Callable[[Path], None], folder: Path, point: int, *, links: bool) -> bool:
    """Do `work` in a child that is killed before its write number `point`. Return whether it came that far."""

    def doomed() -> None:
        left, sync = point, os.fsync

        def before_write() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            created = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT
            if created or event in WRITES:
                before_write()
            if event == "os.link" and not links:
                raise OSError(errno.EPERM, "no links here")

        def counted_sync(fd: Any) -> None:
            before_write()
            sync(fd)

        os.fsync = counted_sync
        sys.addaudithook(hook)
        work(folder)

    status = child(doomed)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(status) == 0, "the child has failed; its traceback is above"
    return False


def check_whole(folder: Path, story: str) -> None:
    """Raise AssertionError unless each file of the user is whole, in its old or its new version."""
    for name, text in BEFORE.items():
        assert (folder / name).read_text() in (text, AFTER[name]), f"{story}: {name}"


def at_every_write(folder: Path, twice: int, *, links: bool) -> dict[str, int]:
    """Kill at every write, and check what the next process makes of it; after every `twice`-th kill, kill that too."""
    kills = second_kills = 0
    make(folder)
    while killed_at(write, folder, kills + 1, links=links):
        kills += 1
        story = f"killed at write {kills}"
        check_whole(folder, story)
        saved = folder.with_name("killed")
        copy(folder, saved)
        second = 1
        while kills % twice == 0 and killed_at(write_other, folder, second, links=links):
            check_whole(folder, f"{story}, and the next one at write {second}")
            write_other(folder)
            check_all_or_none(folder, f"{story}, and the next one at write {second}")
            second_kills += 1
            second += 1
            copy(saved, folder)
        write_other(folder)
        check_all_or_none(folder, story)
        write(folder)
        assert contents(folder) == {**AFTER, OTHER: "other"}, story
        make(folder)
    assert contents(folder) == AFTER
    return {"kills": kills, "second_kills": second_kills}


def half_written(folder: Path) -> None:
    """Kill a process when it has replaced the first file and not the second, and leave the folder as it is then."""

    def doomed() -> None:
        def hook(event: str, arguments: tuple[object, ...]) -> None:
            if event == "os.rename" and arguments[1] == "guide.md":
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        write(folder)

    make(folder)
    assert os.WIFSIGNALED(child(doomed))
    assert (folder / "README.md").read_text() == AFTER["README.md"]


def copy(folder: Path, target: Path) -> None:
    """Copy a folder, in which several names of one file stay names of one file."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    copied: dict[int, Path] = {}
    for path in sorted(folder.rglob("*")):
        place = target / path.relative_to(folder)
        if path.is_dir():
            place.mkdir()
        elif (first := copied.setdefault(path.stat().st_ino, place)) != place:
            place.hardlink_to(first)
        else:
            shutil.copy2(path, place)


def check_all_or_none(folder: Path, story: str) -> None:
    """Raise AssertionError unless the folder has all changes or none, the other file, and nothing else."""
    there = contents(folder)
    assert there.pop(OTHER) == "other", story
    assert there in (BEFORE, AFTER), f"{story}: {there}"
    assert there == AFTER or not (folder / "docs/de").exists(), story


def refusal(folder: Path, most_bytes: int | None) -> str:
    """Return why this process cannot write: as a user without rights, or with a limit on the size of files."""
    if most_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    elif os.geteuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    large: Sequence[NewFile] = [version("large.txt", None, "x" * 5000)] if most_bytes else ()
    try:
        write_files(folder, [*CHANGES, *large], "R")
    except (InputError, WriteFailed) as error:
        return str(error)
    return ""


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--twice", type=int, default=1, help="after this many kills, kill the next process too")
    parser.add_argument("--no-links", action="store_true", help="files can have no second names")
    parser.add_argument("--half", action="store_true", help="kill once, in the middle")
    parser.add_argument("--refused", action="store_true", help="write without rights, and print why that fails")
    parser.add_argument("--most-bytes", type=int, help="write with a limit, and print why that fails")
    given = parser.parse_args()
    if given.refused or given.most_bytes:
        json.dump(refusal(given.folder, given.most_bytes), sys.stdout)
    elif given.half:
        half_written(given.folder)
        json.dump(None, sys.stdout)
    else:
        json.dump(at_every_write(given.folder, given.twice, links=not given.no_links), sys.stdout)


if __name__ == "__main__":
    main()
