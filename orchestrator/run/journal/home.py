"""Find, create and lock the state folder, and give the paths in it.

`Presence` notices that files or folders which a process has open were moved away, deleted or replaced. The system
reports no such thing: what is written into such a file reaches nobody who opens the path later.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.files import FileLocked, lock_file, user_folder
from orchestrator.run.journal.errors import HomeLocked, JournalError, write_error

ENVIRONMENT: Final = "ORCHESTRATOR_HOME"  # names the folder
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")


def home_path(environ: Mapping[str, str]) -> Path:
    """Return where the state folder is: ORCHESTRATOR_HOME, else under XDG_STATE_HOME, else under ~/.local/state."""
    if configured := environ.get(ENVIRONMENT):
        return Path(configured).expanduser().absolute()
    return user_folder(environ, "XDG_STATE_HOME", ".local/state") / "orchestrator"


@dataclass(frozen=True, slots=True)
class Home:
    """The paths of a state folder. The folders below it are created on the first write."""

    path: Path

    @property
    def database(self) -> Path:
        return self.path / "journal.db"

    @property
    def restored(self) -> Path:
        # A backup that is being restored, or the copy of a daemon that ended without `database` in its place.
        return self.path / "journal.db.restored"

    @property
    def used(self) -> tuple[Path, ...]:
        """The files and folders that the owner has open or writes to while it runs, the state folder itself first."""
        logs = (self.path / f"{self.database.name}{end}" for end in ("-wal", "-shm"))
        return (self.path, self.lock_file, self.database, *logs, self.objects, self.runs)

    @property
    def objects(self) -> Path:
        return self.path / "objects"

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    @property
    def step_costs(self) -> Path:
        return self.path / "curves"

    @property
    def footprints(self) -> Path:
        return self.path / "footprints.json"

    @property
    def responses(self) -> Path:
        return self.path / "responses"

    @property
    def threads(self) -> Path:
        return self.path / "threads"

    @property
    def files(self) -> Path:
        return self.path / "files"

    @property
    def prefixes(self) -> Path:
        return self.path / "prefixes"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def lock_file(self) -> Path:
        return self.path / "lock"

    @property
    def socket(self) -> Path:
        return self.path / "api.sock"

    @property
    def token(self) -> Path:
        """The file with the token for requests over TCP."""
        return self.path / "api.token"

    def artifacts(self, run: str) -> Path:
        """Return the folder of a run's artifacts. Raises `JournalError` for what cannot be the id of a run."""
        if not RUN_NAME.match(run):
            raise JournalError(self.path, f"{run!r} is not a run id; accepted: letters, digits, '_' and '-'")
        return self.runs / run / "artifacts"

    def has_owner(self) -> bool:
        """Return whether the process that last locked the folder, and did not release it, still runs."""
        # Trying the lock could make a process fail that starts at the same time.
        try:
            os.kill(int(self.lock_file.read_text("ascii")), 0)
        except PermissionError:
            return True
        except (OSError, ValueError, OverflowError):  # such as an empty file
            return False
        return True

    def create(self) -> None:
        """Create the folder if need be, accessible to its owner only. Raises `JournalError`."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.mkdir(mode=0o700, exist_ok=True)
            self.path.chmod(0o700)  # an existing one may be open to others
        except OSError as error:
            raise write_error(self.path, "cannot be the state folder", error) from error


class HomeLock:
    """The lock on a state folder, held from `acquire` until `release`, or until the process ends."""

    def __init__(self, home: Home) -> None:
        self._path = home.lock_file
        self._file: int | None = None

    def acquire(self) -> None:
        """Take the lock. Raises `HomeLocked` at once, naming the holder, if another process has it."""
        try:
            self._file = lock_file(self._path)
        except FileLocked as error:
            raise HomeLocked(self._path, error.holder) from error
        except OSError as error:
            raise write_error(self._path, "cannot be locked", error) from error

    def release(self) -> None:
        if self._file is not None:
            # The file stays, since otherwise two processes could lock two files of the same name.
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = None

    def __enter__(self) -> "HomeLock":
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Presence:
    """Whether paths still lead to the files and folders that were there first."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = tuple(paths)
        # Kept open, so that their inode numbers are not given to other files. O_PATH takes no part in anybody's locks.
        # A path that does not exist yet is watched as soon as it does.
        self._held: dict[Path, int] = {}
        self.missing()

    def missing(self) -> str | None:
        """Return what happened to the first path that no longer leads to the original; None while all do."""
        return next((change for path in self._paths if (change := self.change_of(path)) is not None), None)

    def change_of(self, path: Path) -> str | None:
        expected = self._held.get(path)
        try:
            current = os.stat(path)
            if expected is None:
                self._held[path] = os.open(path, os.O_PATH | os.O_CLOEXEC)
            elif not os.path.samestat(current, os.fstat(expected)):
                return f"{path} is in use, but something else was put in its place"
        except OSError as error:
            return None if expected is None else f"{path} is in use, but {_how(expected, error)}"
        return None

    def close(self) -> None:
        self._paths = ()
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()


def _how(held: int, error: OSError) -> str:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        return f"cannot be reached: {error.strerror}"
    return "was moved away" if os.fstat(held).st_nlink else "was deleted"  # no names left: it was deleted
