"""Wait for room on a disk that is full."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import structlog

from orchestrator.journal import DiskFull
from orchestrator.journal.writer import ROOM_SECONDS

T = TypeVar("T")

log = structlog.get_logger(__name__)


async def with_room(write: Callable[[], T]) -> T:
    """Return what `write` returns, called in a thread, and again as long as the disk is full. Raises what it raises.

    When this is cancelled, it ends after a call that is under way.
    """
    while True:
        try:
            return await _to_its_end(write)
        except DiskFull as error:
            log.warning("a step waits for room on the disk", error=str(error))
            await asyncio.sleep(ROOM_SECONDS)


async def _to_its_end(write: Callable[[], T]) -> T:
    """Return what `write` returns, called in a thread, which nothing can stop: so a cancellation waits for it."""
    writing = asyncio.ensure_future(asyncio.to_thread(write))
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait([writing])
        raise
