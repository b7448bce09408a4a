"""Ask the disk itself whether there is room, since not every error of a write says so, and wait until there is."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final, TypeVar

import structlog

from orchestrator.journal.errors import DISK_FULL_ERRNOS, DiskFull

T = TypeVar("T")

log = structlog.get_logger(__name__)

DISK_FULL_RETRY_SECONDS: Final = 1.0
"""Between two tries to write on a disk that is full: nothing tells when there is room."""

PROBE_BYTES: Final = 1 << 16
"""That are written to see whether the disk is full: more than a failed write of SQLite has left of a quota."""


def is_full(folder: Path) -> bool:
    """Try whether a little more can be written into a folder."""
    try:
        with TemporaryFile(dir=folder) as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())  # some file systems tell only now
    except OSError as error:
        return error.errno in DISK_FULL_ERRNOS
    return False


async def retry_when_disk_full(write: Callable[[], T]) -> T:
    """Return what `write` returns, called in a thread, and again as long as the disk is full. Raises what it raises.

    When this is cancelled, it ends after a call that is under way.
    """
    while True:
        try:
            return await _to_its_end(write)
        except DiskFull as error:
            log.warning("a step waits for room on the disk", error=str(error))
            await asyncio.sleep(DISK_FULL_RETRY_SECONDS)


async def _to_its_end(write: Callable[[], T]) -> T:
    """Return what `write` returns, called in a thread, which nothing can stop: so a cancellation waits for it."""
    writing = asyncio.ensure_future(asyncio.to_thread(write))
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait([writing])
        raise
