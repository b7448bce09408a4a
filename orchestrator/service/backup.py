"""Back up the state folder while it is in use, and restore backups.

A backup is a folder `backups/NAME` with the database and the objects. Objects that an earlier backup has are hard
links. A name is the time, with a number if that is not later than the last name, so names tell the order of backups
even if the clock was set back.
"""

import os
import re
import shutil
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import InputError, Problem
from orchestrator.run.journal.errors import JournalError, write_error
from orchestrator.run.journal.home import Home, HomeLock
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.objects import ObjectStore
from orchestrator.run.journal.reader import JournalReader

NAME = re.compile(r"(\d{8}-\d{6})(?:-(\d+))?\Z")
UNFINISHED = "unfinished-"
_PARTS = ("journal.db", "journal.db-wal", "journal.db-shm")


@dataclass(frozen=True, slots=True)
class Backup:
    """One backup."""

    name: str
    made: float  # seconds since the epoch
    bytes: int  # of all files, also of links to files of earlier backups


def backups(home: Path) -> list[Backup]:
    """Return the backups of a state folder, oldest first. Blocks on the disk. Raises JournalError."""
    paths = [path for path in _folder(home).glob("*") if NAME.match(path.name)]
    try:
        return [_described(path) for path in sorted(paths, key=lambda path: _order(path.name))]
    except OSError as error:
        raise JournalError(_folder(home), f"cannot be read: {error.strerror}: {error.filename}") from error


def make_backup(journal: Journal) -> Backup:
    """Back up what is committed now, and return the backup. Blocks on the disk. Raises JournalError.

    There must be one call at a time.
    """
    folder = _folder(journal.home.path)
    _sweep(folder)
    earlier = [folder / backup.name for backup in backups(journal.home.path)]
    unfinished = folder / f"{UNFINISHED}{time.monotonic_ns()}"
    try:
        (unfinished / "objects").mkdir(parents=True)
        folder.chmod(0o700)
        # The database before the objects: an object is stored before the events that name it.
        journal.copy_to(unfinished / "journal.db")
        for path in _objects(journal.home.objects):
            _copy_object(path, unfinished / "objects", earlier)
        os.sync()
        target = folder / next_name([path.name for path in folder.iterdir()], time.strftime("%Y%m%d-%H%M%S"))
        unfinished.rename(target)
        return _described(target)
    except OSError as error:
        raise JournalError(folder, f"no backup can be made: {error.strerror}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def find_backup(home: Path, name: str) -> Path:
    """Return the folder of a backup. Raises InputError, JournalError."""
    names = [backup.name for backup in backups(home)]
    if name not in names:
        missing = f"{name!r} was not found" if names else f"{name!r} was not found (there are no backups)"
        raise InputError(Problem("backup", missing, ", ".join(names)))
    return _folder(home) / name


def discard_backup(home: Path, name: str) -> None:
    """Remove a backup. Raises InputError, JournalError."""
    folder = find_backup(home, name)
    try:
        # Under another name first, so that a killed process leaves no half of a backup.
        unfinished = folder.with_name(f"{UNFINISHED}{name}")
        folder.rename(unfinished)
        shutil.rmtree(unfinished)
    except OSError as error:
        raise JournalError(folder, f"cannot be removed: {error.strerror}") from error


def restore_backup(home: Path, name: str) -> None:
    """Replace the journal by that of a backup, and keep the old one in `backups/replaced-...`.

    Objects are added, none is removed. Blocks on the disk. Raises InputError, JournalError, and HomeLocked while a
    process owns the state folder.
    """
    source, place = find_backup(home, name), Home(home)
    with JournalReader.open_to_read(source) as copy:
        if damage := copy.damage():
            raise JournalError(source, f"is damaged: {damage[0]}")
    with HomeLock(place):
        try:
            _replace_journal(source, place)
        except OSError as error:
            raise write_error(home, "the backup cannot be restored", error) from error


def _replace_journal(source: Path, place: Home) -> None:
    objects = ObjectStore(place.objects)
    for path in _objects(source / "objects"):
        objects.put(path.read_bytes())  # replaces a damaged object, leaves none half written
    shutil.copy2(source / "journal.db", place.restored)
    os.sync()
    aside = _folder(place.path) / f"replaced-{time.strftime('%Y%m%d-%H%M%S')}-{time.monotonic_ns()}"
    aside.mkdir()
    for part in _PARTS:
        if (place.path / part).exists():
            (place.path / part).rename(aside / part)
    place.restored.rename(place.database)


def _sweep(folder: Path) -> None:
    for path in folder.glob(f"{UNFINISHED}*"):  # of processes that were killed
        shutil.rmtree(path, ignore_errors=True)


def _folder(home: Path) -> Path:
    return home / "backups"


def next_name(names: Collection[str], now: str) -> str:
    """Return the name for a backup that is made `now`; it sorts after the backups among `names`.

    If the clock was set back, it is the last name with the next number.
    """
    last, number = max((_order(name) for name in names if NAME.match(name)), default=("", 0))
    return now if now > last else f"{last}-{number + 1}"


def _order(name: str) -> tuple[str, int]:
    parts = NAME.match(name)
    assert parts is not None, "it is the name of a backup"
    return parts[1], int(parts[2] or 1)


def _objects(root: Path) -> Iterator[Path]:
    return (path for path in root.glob("??/*") if path.is_file())


def _copy_object(path: Path, root: Path, earlier: list[Path]) -> None:
    name = Path(path.parent.name) / path.name
    target = root / name
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    earlier_copy = next(
        (backup / "objects" / name for backup in reversed(earlier) if (backup / "objects" / name).exists()), None
    )
    if earlier_copy is not None:
        os.link(earlier_copy, target)
        return
    try:
        shutil.copy2(path, target)
    except FileNotFoundError:  # a run was deleted meanwhile, and no event names the object any more
        target.unlink(missing_ok=True)


def _described(path: Path) -> Backup:
    sizes = sum(item.stat().st_size for item in path.rglob("*") if item.is_file())
    return Backup(path.name, (path / "journal.db").stat().st_mtime, sizes)
