"""Notice that files or folders which a process has open were moved away, deleted or replaced.

The system reports no such thing: what is written into such a file reaches nobody who opens the path later.
"""

import os
from collections.abc import Iterable
from pathlib import Path


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
        held = self._held.get(path)
        try:
            there = os.stat(path)
            if held is None:
                self._held[path] = os.open(path, os.O_PATH | os.O_CLOEXEC)
            elif not os.path.samestat(there, os.fstat(held)):
                return f"{path} is in use, but something else was put in its place"
        except OSError as error:
            return None if held is None else f"{path} is in use, but {_how(held, error)}"
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
