"""Keep the memory of all running jobs together within a budget: a job waits until its share is free."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from orchestrator.sandbox.contract import Limits
from orchestrator.sandbox.errors import InvalidJob


def affordable(limits: Limits, budget: int, *, counted: bool) -> Limits:
    """Return the limits with as many processes as the budget (bytes) pays for. Raises InvalidJob if it is not even one.

    Where a control group counts the memory of all processes together (`counted`), their number costs nothing.
    """
    if counted:
        if limits.memory > budget:
            raise InvalidJob(f"the job wants {limits.memory} bytes of memory; accepted: up to {budget}")
        return limits
    processes = min(limits.processes, (budget - 2 * limits.disk) // limits.memory)
    if processes < 1:
        wanted = limits.memory + 2 * limits.disk
        raise InvalidJob(f"the job wants {wanted} bytes for one process and its files; accepted: up to {budget}")
    return replace(limits, processes=processes)


def cost(limits: Limits, *, counted: bool) -> int:
    """Return the bytes that a job within these limits can take at most."""
    return limits.memory if counted else limits.processes * limits.memory + 2 * limits.disk


class Budget:
    """Bytes that jobs share, first come, first served."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._free = total
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def share(self, wanted: int) -> AsyncIterator[None]:
        """Hold `wanted` bytes, at most the total, for as long as the block lasts."""
        assert wanted <= self.total, "limits are made affordable first"
        await self._take(wanted)
        try:
            yield
        finally:
            self._free += wanted
            self._grant()

    async def _take(self, wanted: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, turn))
        self._grant()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._free += wanted
            self._grant()  # which passes over the turns of those that were cancelled
            raise

    def _grant(self) -> None:
        while self._waiting and (self._waiting[0][1].cancelled() or self._waiting[0][0] <= self._free):
            wanted, turn = self._waiting.popleft()
            if not turn.cancelled():
                self._free -= wanted
                turn.set_result(None)
