"""Define the clock that events are timed by: seconds since the epoch, which never go backwards.

Everything else that has to do with time goes through the event loop: sleeping, timers, time limits, and waiting for
threads. Virtual time replaces the clock of the event loop.
"""

import time
from typing import Final, Protocol

import structlog

_COUNTER: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""The clock that counts seconds. Where the system has one, it goes on while the machine is suspended."""

log = structlog.get_logger(__name__)


class Clock(Protocol):
    """Gives the times of events."""

    def now(self) -> float:
        """Return seconds since the epoch; never less than before."""


class SystemClock:
    """The wall clock. It is read once; from then on a clock that is never set counts the seconds.

    So changes of the system clock do not matter.

    Where the system clock is behind `not_before`, the time begins there, so that later events have later times.
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
        """Return seconds since the epoch."""
        return self._start + time.clock_gettime(_COUNTER)
