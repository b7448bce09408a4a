"""Define the clock that events are timed by: seconds since the epoch, which never go backwards.

Sleeping, timers and time limits use the event loop, whose clock virtual time replaces.
"""

import time
from typing import Final, Protocol

import structlog

# CLOCK_BOOTTIME continues while the machine is suspended.
_COUNTER: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

log = structlog.get_logger(__name__)


class Clock(Protocol):
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
