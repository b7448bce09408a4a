"""Tell the time for events: seconds since the epoch that never run backwards."""

import time


class Clock:
    """Wall time, read once and then counted by the monotonic clock: a step of the system clock is not seen."""

    def __init__(self) -> None:
        self._start = time.time() - time.monotonic()

    def now(self) -> float:
        """Return seconds since the epoch."""
        return self._start + time.monotonic()
