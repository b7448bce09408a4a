"""What can go wrong with the state folder.

JournalError
├── HomeLocked        another process owns the state folder
├── JournalCorrupt    the database, an event or an object is damaged
├── JournalTooNew     a later version wrote the database
├── DiskFull          there is no room on the disk for what is to be written
├── JournalClosed     whoever owned the folder has closed it
├── ObjectMissing     an object that an event names is not there
└── UnknownRun        there is no such run
"""

import errno
from pathlib import Path

from orchestrator.errors import OrchestratorError


class JournalError(OrchestratorError):
    """The state folder cannot be used as asked; `path` is the file or folder it is about."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


class HomeLocked(JournalError):
    """Another process owns the state folder. `holder` is its process id, or None where it has not said so yet."""

    def __init__(self, path: Path, holder: int | None) -> None:
        who = f"process {holder}" if holder else "another process"
        super().__init__(path, f"{who} owns this state folder; stop it, or set ORCHESTRATOR_HOME to another folder")
        self.holder = holder


class JournalCorrupt(JournalError):
    """Something in the state folder is damaged. It is never repaired by guessing."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(
            path,
            f"damaged: {what}; restore it from a backup (`orchestrator backup --list` names them, "
            "`orchestrator restore NAME` puts one back), or move the state folder away to start anew",
        )
        self.what = what


class JournalTooNew(JournalError):
    """The database has a schema `version` that this program, which knows `known`, must not touch."""

    def __init__(self, path: Path, version: int, known: int) -> None:
        super().__init__(path, f"has schema version {version}, but this program knows {known} at most; use a later one")
        self.version = version
        self.known = known


class DiskFull(JournalError):
    """Nothing of what was to be written is there. It can be written again once there is room."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "cannot be written: no room is left on its disk; go on by making room there")


class JournalClosed(JournalError):
    """Whoever owned the folder has closed it meanwhile, as to put a backup back."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "was closed; try again when it is open")


class ObjectMissing(JournalError):
    """No object with this `digest` is stored."""

    def __init__(self, path: Path, digest: str) -> None:
        super().__init__(path, f"object {digest} is missing")
        self.digest = digest


class UnknownRun(JournalError):
    """The journal holds no such `run`."""

    def __init__(self, path: Path, run: str) -> None:
        super().__init__(path, f"holds no run {run!r}")
        self.run = run


DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})


def write_error(path: Path, what: str, error: OSError) -> JournalError:
    """Return what to raise for something that could not be written."""
    return DiskFull(path) if error.errno in DISK_FULL_ERRNOS else JournalError(path, f"{what}: {error.strerror}")
