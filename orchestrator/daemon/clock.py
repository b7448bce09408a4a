"""Tell the time for events: seconds since the epoch that never run backwards."""

import time


class Clock:
    """Wall time, read once and then counted by the monotonic clock: a step of the system clock is not seen.

    It begins at `not_before` where the system clock is behind that: what comes later has a later time.
    """

    def __init__(self, not_before: float = 0.0) -> None:
        self._start = max(time.time(), not_before) - time.monotonic()

    def now(self) -> float:
        """Return seconds since the epoch."""
        return self._start + time.monotonic()
