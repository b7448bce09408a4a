"""What can go wrong with the state folder.

JournalError
├── HomeLocked        another process owns the state folder
├── JournalCorrupt    the database, an event or an object is damaged
├── JournalTooNew     a later version wrote the database
├── ObjectMissing     an object that an event names is not there
└── UnknownRun        there is no such run
"""

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
            path, f"damaged: {what}; restore it from a backup, or move the state folder away to start anew"
        )


class JournalTooNew(JournalError):
    """The database has a schema `version` that this program, which knows `known`, must not touch."""

    def __init__(self, path: Path, version: int, known: int) -> None:
        super().__init__(path, f"has schema version {version}, but this program knows {known} at most; use a later one")
        self.version = version
        self.known = known


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
