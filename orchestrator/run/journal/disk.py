"""Retry writes to a full disk until there is space."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

import structlog

from orchestrator.run.journal.errors import DiskFull

T = TypeVar("T")

log = structlog.get_logger(__name__)

# Between two tries to write on a full disk, since nothing reports that space was freed.
DISK_FULL_RETRY_SECONDS: Final = 1.0


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
