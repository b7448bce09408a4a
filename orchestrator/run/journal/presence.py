"""Notice that files or folders which a process has open were moved away, deleted or replaced.

Nothing reports that: what is written into such a file reaches nobody who opens the path later.
"""

import os
from collections.abc import Iterable
from pathlib import Path


class Presence:
    """Whether paths still lead to what was there when it was first seen.

    A path that leads nowhere yet is watched from when it does. What is watched is kept open, so that its number on the
    disk is not given to another file. Opening it for its path only takes no part in anybody's locks.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = tuple(paths)
        self._held: dict[Path, int] = {}
        self.missing()

    def missing(self) -> str | None:
        """Return what has happened to the first path that no longer leads to what it did; None while all do."""
        return next((what for path in self._paths if (what := self.change_of(path)) is not None), None)

    def change_of(self, path: Path) -> str | None:
        """Return what has happened to one of the paths, or None."""
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
        """Watch nothing any more."""
        self._paths = ()
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()


def _how(held: int, error: OSError) -> str:
    """Return what has happened to an open file that its path no longer leads to."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        return f"cannot be reached: {error.strerror}"
    return "was moved away" if os.fstat(held).st_nlink else "was deleted"
