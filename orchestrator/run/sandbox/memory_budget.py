"""Keep the memory of all running jobs within a budget: a job waits until the memory that it needs is free."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from orchestrator.run.sandbox.contract import SandboxLimits
from orchestrator.run.sandbox.errors import InvalidJob


def fit_to_budget(limits: SandboxLimits, budget: int, *, counted: bool) -> SandboxLimits:
    """Return the limits with as many processes as fit into the budget (bytes). Raises InvalidJob if none does.

    `counted`: a control group counts the memory of all processes together, so their number does not matter.
    """
    if counted:
        if limits.memory > budget:
            raise InvalidJob(f"the job needs {limits.memory} bytes of memory; accepted: up to {budget}")
        return limits
    processes = min(limits.processes, (budget - 2 * limits.disk) // limits.memory)
    if processes < 1:
        needed = limits.memory + 2 * limits.disk
        raise InvalidJob(f"the job needs {needed} bytes for one process and its files; accepted: up to {budget}")
    return replace(limits, processes=processes)


def memory_cost(limits: SandboxLimits, *, counted: bool) -> int:
    return limits.memory if counted else limits.processes * limits.memory + 2 * limits.disk


class MemoryBudget:
    """Memory (bytes) that jobs share, first come, first served."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._free = total
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def reserve(self, size: int) -> AsyncIterator[None]:
        """Wait until `size` bytes (at most the total) are free, and hold them during the block."""
        assert size <= self.total, "limits have been made to fit into the budget"
        await self._take(size)
        try:
            yield
        finally:
            self._free += size
            self._grant()

    async def _take(self, size: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        self._grant()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._free += size
            self._grant()  # which passes over those that were cancelled
            raise

    def _grant(self) -> None:
        while self._waiting and (self._waiting[0][1].cancelled() or self._waiting[0][0] <= self._free):
            size, turn = self._waiting.popleft()
            if not turn.cancelled():
                self._free -= size
                turn.set_result(None)
