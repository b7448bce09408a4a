"""Find out whether the disk is full, by writing to it, and retry writes until there is space."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final, TypeVar

import structlog

from orchestrator.run.journal.errors import DISK_FULL_ERRNOS, DiskFull

T = TypeVar("T")

log = structlog.get_logger(__name__)

# Between two tries to write on a full disk, since nothing reports that space was freed.
DISK_FULL_RETRY_SECONDS: Final = 1.0

# More than a failed write of SQLite leaves of a quota.
PROBE_BYTES: Final = 1 << 16


def is_full(folder: Path) -> bool:
    """Return whether the disk of a folder is full, by writing 64 KiB there."""
    # Not every error of SQLite says whether a full disk caused it.
    try:
        with TemporaryFile(dir=folder) as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())  # some file systems report a full disk only here
    except OSError as error:
        return error.errno in DISK_FULL_ERRNOS
    return False


async def retry_when_disk_full(write: Callable[[], T]) -> T:
    """Call `write` in a thread, repeatedly while it raises DiskFull, and return its result.

    If this is cancelled, a running call is awaited first.
    """
    while True:
        try:
            return await _uninterrupted(write)
        except DiskFull as error:
            log.warning("the disk is full: a step waits until it can write", error=str(error))
            await asyncio.sleep(DISK_FULL_RETRY_SECONDS)


async def _uninterrupted(write: Callable[[], T]) -> T:
    # A thread cannot be stopped, so a cancellation waits for it.
    writing = asyncio.ensure_future(asyncio.to_thread(write))
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait([writing])
        raise
