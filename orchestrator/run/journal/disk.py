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

DISK_FULL_RETRY_SECONDS: Final = 1.0
"""The time between two tries to write on a full disk, since nothing reports that space was freed."""

PROBE_BYTES: Final = 1 << 16
"""How much is written to find out whether the disk is full: more than a failed write of SQLite leaves of a quota."""


def is_full(folder: Path) -> bool:
    """Return whether the disk of a folder is full, by writing 64 KiB there.

    Not every error of SQLite says whether a full disk caused it.
    """
    try:
        with TemporaryFile(dir=folder) as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())  # some file systems report a full disk only here
    except OSError as error:
        return error.errno in DISK_FULL_ERRNOS
    return False


async def retry_when_disk_full(write: Callable[[], T]) -> T:
    """Call `write` in a thread, again and again while it raises DiskFull, and return what it returns.

    Raises its other errors. If this is cancelled, a call that is under way is awaited first.
    """
    while True:
        try:
            return await _uninterrupted(write)
        except DiskFull as error:
            log.warning("the disk is full: a step waits until it can write", error=str(error))
            await asyncio.sleep(DISK_FULL_RETRY_SECONDS)


async def _uninterrupted(write: Callable[[], T]) -> T:
    """Return what `write` returns, called in a thread. A thread cannot be stopped, so a cancellation waits for it."""
    writing = asyncio.ensure_future(asyncio.to_thread(write))
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait([writing])
        raise
