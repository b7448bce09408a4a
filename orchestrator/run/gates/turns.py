"""Grant jobs their turns by slack: the least slack first, and few jobs with slack at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from orchestrator.run.gates.shares import PATIENCE, is_urgent


@dataclass(slots=True, eq=False)
class _Waiting:
    due: float
    turn: "asyncio.Future[None]"


@dataclass(slots=True)
class Turns:
    """At most `urgent` urgent jobs run at once. Others start only while fewer than `patient` jobs run."""

    urgent: int
    patient: int
    _waiting: list[_Waiting] = field(default_factory=list)
    _running: list[float] = field(default_factory=list)

    @asynccontextmanager
    async def of(self, due: float) -> AsyncIterator[None]:
        """Wait for the turn of a job that is due at `due` (event loop time), and hold it."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(due, loop.create_future())
        self._waiting.append(waiting)
        self._waiting.sort(key=lambda job: job.due)
        hurry = loop.call_later(max(0.0, due - PATIENCE - loop.time()), self._grant)
        try:
            self._grant()
            await waiting.turn
            yield
        finally:
            hurry.cancel()
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            else:
                self._running.remove(due)
            self._grant()

    def _grant(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._waiting and self._may_run(self._waiting[0].due, now):
            waiting = self._waiting.pop(0)
            self._running.append(waiting.due)
            if not waiting.turn.done():
                waiting.turn.set_result(None)

    def _may_run(self, due: float, now: float) -> bool:
        if is_urgent(due, now):
            return sum(is_urgent(running, now) for running in self._running) < self.urgent
        # So no job with slack keeps an urgent one waiting.
        return len(self._running) < self.patient
