"""Lock folders until an execution has ended, so that no second process changes the same thing.

The lock is on the open folder, so it needs no file, and the lock of a killed process is gone. `registry.edit` takes the
same lock.
"""

import os
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from orchestrator.files import FileLocked, FolderLocked, lock_file, lock_folder
from orchestrator.procedures.durable import make_private_folder
from orchestrator.procedures.errors import ProcedureBusy, ProcedureError


class Locks:
    """The locks of one execution; a context manager."""

    def __init__(self, folder: Path) -> None:
        """`folder` is that of the procedures of one state folder, which has one execution at a time."""
        self._path = folder / "lock"
        self._held: set[tuple[int, int]] = set()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Raises ProcedureBusy."""
        try:
            make_private_folder(self._path.parent)
            self._stack.callback(os.close, lock_file(self._path))
        except FileLocked as error:
            raise ProcedureBusy(
                f"{error} is executing a procedure on {self._path.parent}; wait until it has ended"
            ) from error
        except OSError as error:
            raise ProcedureError(f"{self._path}: cannot be locked: {error.strerror}") from error
        return self

    def __exit__(self, *_: object) -> None:
        self._held.clear()
        self._stack.close()

    def hold(self, folders: Iterable[Path]) -> None:
        """Lock folders, or their nearest parents that exist. Raises ProcedureBusy."""
        nearest = {
            next(candidate for candidate in (folder, *folder.parents) if candidate.is_dir()) for folder in folders
        }
        for folder in sorted(nearest):
            status = folder.stat()
            if (identity := (status.st_dev, status.st_ino)) in self._held:
                continue
            try:
                self._stack.enter_context(lock_folder(folder))
            except FolderLocked as error:
                raise ProcedureBusy(str(error)) from error
            self._held.add(identity)
