"""Tell the time for events: seconds since the epoch that never run backwards.

Everything else that has to do with time, which is sleeping, timers, limits and threads that are waited for, goes
through the event loop: its clock is the one that a virtual time replaces.
"""

import time
from typing import Final, Protocol

import structlog

_COUNTER: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Counts on while the machine is suspended, where there is such a clock."""

log = structlog.get_logger(__name__)


class Clock(Protocol):
    """Tells what time events happen at."""

    def now(self) -> float:
        """Return seconds since the epoch; never less than before."""


class SystemClock:
    """Wall time, read once and then counted by a clock that is never set: a step of the system clock is not seen.

    It begins at `not_before` where the system clock is behind that: what comes later has a later time.
    """

    def __init__(self, not_before: float = 0.0) -> None:
        now = time.time()
        if not_before > now:
            log.warning("the system clock is behind the journal, whose time goes on", seconds=not_before - now)
        self._start = max(now, not_before) - time.clock_gettime(_COUNTER)

    def now(self) -> float:
        """Return seconds since the epoch."""
        return self._start + time.clock_gettime(_COUNTER)
