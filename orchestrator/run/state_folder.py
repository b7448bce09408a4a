"""A state folder that this process owns, and what can be done with it without a model."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, Protocol, Self

import structlog

from orchestrator.errors import InputError, Problem
from orchestrator.registry.models import Registry
from orchestrator.run.journal.journal import Journal
from orchestrator.run.personas import PersonaBook
from orchestrator.run.record.cache import ViewCache

# CLOCK_BOOTTIME continues while the machine is suspended.
_COUNTER: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

log = structlog.get_logger(__name__)


class Clock(Protocol):
    """The source of the times of events.

    Sleeping, timers and time limits use the event loop, whose clock virtual time replaces.
    """

    def now(self) -> float:
        """Return seconds since the epoch; never less than before."""


class SystemClock:
    """The wall clock, read once; from then on a clock that is never set counts the seconds.

    If the system clock is behind `not_before`, time starts there, so that later events have later times.
    """

    def __init__(self, not_before: float = 0.0) -> None:
        now = time.time()
        if not_before > now:
            log.warning(
                "the system clock is behind the last event of the journal, whose time is used instead",
                seconds=not_before - now,
            )
        self._start = max(now, not_before) - time.clock_gettime(_COUNTER)

    def now(self) -> float:
        return self._start + time.clock_gettime(_COUNTER)


class StateFolder:
    """The journal of a state folder, its clock, its personas and views of its runs. An async context manager.

    Entering raises JournalError, for example HomeLocked while another process owns the folder.
    """

    def __init__(
        self,
        home: Path,
        registry: Registry,
        clock: Callable[[float], Clock] = SystemClock,
        open_journal: Callable[[Path], Journal] = Journal.open,
    ) -> None:
        """`clock` makes the clock of events from the time of the journal's last event."""
        self._home = home
        self._files_registry = registry.with_personas(())
        self.registry = registry  # in force, with the personas that were made at run time and are in use
        self._new_clock = clock
        self._open_journal = open_journal
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._enter(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.__aexit__(*error)

    async def _enter(self, stack: AsyncExitStack) -> None:
        self.journal: Journal = stack.enter_context(await asyncio.to_thread(self._open_journal, self._home))
        self.clock = self._new_clock(self.journal.last_time())
        self.views = ViewCache(self.journal)
        self.personas = await PersonaBook.open(
            self.journal, self._adopt_personas, lambda: self.registry, self.clock.now
        )
        self.registry = self._files_registry.with_personas(self.personas.in_use)

    async def delete(self, run: str) -> None:
        """Delete a run that has ended, with its folder. Raises UnknownRun, and InputError for one that has not."""
        row = await asyncio.to_thread(self.journal.run, run)
        if row.finished is None:
            raise InputError(Problem(f"run {run}", f"has not ended: {row.status}", "a run that has; cancel it first"))
        await asyncio.to_thread(self.journal.delete, run)

    def _adopt_personas(self) -> None:
        self.registry = self._files_registry.with_personas(self.personas.in_use)
