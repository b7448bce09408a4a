"""Tell the time for events: seconds since the epoch that never run backwards."""

import time
from typing import Final

_COUNTER: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Counts on while the machine is suspended, where there is such a clock."""


class Clock:
    """Wall time, read once and then counted by a clock that is never set: a step of the system clock is not seen.

    It begins at `not_before` where the system clock is behind that: what comes later has a later time.
    """

    def __init__(self, not_before: float = 0.0) -> None:
        self._start = max(time.time(), not_before) - time.clock_gettime(_COUNTER)

    def now(self) -> float:
        """Return seconds since the epoch."""
        return self._start + time.clock_gettime(_COUNTER)
