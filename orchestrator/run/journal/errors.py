"""The errors of the state folder and its journal.

JournalError
├── HomeLocked        another process owns the state folder
├── JournalCorrupt    the database, an event or an object is damaged
├── JournalTooNew     a later version wrote the database
├── DiskFull          the disk is full
├── JournalClosed     the owner of the folder has closed the journal
├── ObjectMissing     no object with this digest is stored
├── UnknownRun        there is no such run
└── UnknownChat       there is no such chat
"""

import errno
from pathlib import Path

from orchestrator.errors import OrchestratorError


class JournalError(OrchestratorError):
    """The state folder cannot be used as requested; `path` is the file or folder it is about."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


class HomeLocked(JournalError):
    """Another process owns the state folder. `holder` is its process id, or None if it has not written that yet."""

    def __init__(self, path: Path, holder: int | None) -> None:
        who = f"process {holder}" if holder else "another process"
        super().__init__(path, f"{who} owns this state folder; stop it, or set ORCHESTRATOR_HOME to another folder")
        self.holder = holder


class JournalCorrupt(JournalError):
    """A file of the state folder is damaged; `what` says how. It is never repaired by guessing."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(
            path,
            f"damaged: {what}; restore it from a backup (`orchestrator backup --list` names them, "
            "`orchestrator restore NAME` puts one back), or move the state folder away to start anew",
        )
        self.what = what


class JournalTooNew(JournalError):
    """The database has a schema `version` later than `known`, the latest one of this program."""

    def __init__(self, path: Path, version: int, known: int) -> None:
        super().__init__(path, f"has schema version {version}, but this program knows {known} at most; use a later one")
        self.version = version
        self.known = known


class DiskFull(JournalError):
    """The disk is full. Nothing was written, and the same can be written again once there is space."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "cannot be written: no room is left on its disk; free some space there to go on")


class JournalClosed(JournalError):
    """The owner of the state folder has closed the journal, for example to restore a backup."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "was closed, for example to restore a backup; try again later")


class ObjectMissing(JournalError):
    """No object with this `digest` is stored."""

    def __init__(self, path: Path, digest: str) -> None:
        super().__init__(path, f"object {digest} is missing")
        self.digest = digest


class UnknownRun(JournalError):
    """The journal holds no such `run`."""

    def __init__(self, path: Path, run: str) -> None:
        OrchestratorError.__init__(self, f"there is no run {run!r}")  # callers of the API need not know the path
        self.path, self.run = path, run


class UnknownChat(JournalError):
    """The journal holds no such `chat`: it never did, no router chose its model, or it is kept no longer."""

    def __init__(self, path: Path, chat: str) -> None:
        super().__init__(path, f"holds no chat {chat!r}; only chats are kept whose model a router has chosen")
        self.chat = chat


DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})


def write_error(path: Path, problem: str, error: OSError) -> JournalError:
    return DiskFull(path) if error.errno in DISK_FULL_ERRNOS else JournalError(path, f"{problem}: {error.strerror}")
