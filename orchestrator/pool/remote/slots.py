"""Limit how many requests run at a time. The most urgent waiting request is next."""

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class RequestSlots:
    """A semaphore of `count` slots, granted in the order of `due` (event loop time), then of arrival.

    No request starves, because later requests are due later, except for a difference in slack.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._arrivals = itertools.count()
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def hold(self, due: float) -> AsyncIterator[None]:
        await self._take(due)
        try:
            yield
        finally:
            self._give()

    async def _take(self, due: float) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (due, next(self._arrivals), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the slot was given at the same moment as the cancellation
                self._give()
            raise

    def _give(self) -> None:
        while self._waiting:
            *_, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
