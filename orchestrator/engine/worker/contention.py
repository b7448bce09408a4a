"""Tell whether other processes had the cores while this one computed.

A thread that computes, or spins until its neighbours are done, uses CPU time. Where a process with n busy threads used
much less than n times the time that has passed, some of its threads were waiting for a core.
"""

import time

QUIET_SHARE = 0.8
"""The share of its threads' time that an undisturbed step uses, at least. llama.cpp computes with one thread for a
small part of each step, while the others spin or sleep."""

SHORT_SECONDS = 0.002
"""Nothing is said of a shorter step: to lay it out takes longer than to compute it, with most threads asleep."""


class CpuUse:
    """Measures the seconds that pass and the CPU seconds that this process uses from `start` to `stop`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._wall = self._cpu = self._used = 0.0

    def start(self) -> None:
        """Begin to measure."""
        self._cpu = time.process_time()
        self._wall = time.monotonic()

    def stop(self) -> float:
        """Stop measuring, and return the seconds that have passed."""
        self.seconds = time.monotonic() - self._wall
        self._used = time.process_time() - self._cpu
        return self.seconds

    def disturbed(self, threads: int) -> bool:
        """Return whether `threads` threads that had work all the time had to wait for cores for a part of it."""
        return self.seconds > SHORT_SECONDS and self._used < QUIET_SHARE * threads * self.seconds
