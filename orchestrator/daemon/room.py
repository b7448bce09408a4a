"""Wait for room on a disk that is full."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

import structlog

from orchestrator.journal import DiskFull

ROOM_SECONDS: Final = 1.0
"""Between two tries: nothing tells when there is room."""

T = TypeVar("T")

log = structlog.get_logger(__name__)


async def with_room(write: Callable[[], T]) -> T:
    """Return what `write` returns, called in a thread, and again as long as the disk is full. Raises what it raises."""
    while True:
        try:
            return await asyncio.to_thread(write)
        except DiskFull as error:
            log.warning("a step waits for room on the disk", error=str(error))
            await asyncio.sleep(ROOM_SECONDS)
