"""Lock a folder, so that two processes do not change files in it at the same time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class FolderLocked(Exception):
    """Another process is changing files of `folder`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"{folder}: another process is changing files in this folder; try again when it has ended")
        self.folder = folder


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder in the block. Raises FolderLocked at once if it is taken, and OSError."""
    # A lock on the open folder leaves no file behind when the process is killed.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FolderLocked(folder) from error
        yield
    finally:
        os.close(descriptor)
