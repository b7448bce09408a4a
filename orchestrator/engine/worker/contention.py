"""Find out whether other processes had the cores while this one computed.

A thread that computes, or spins until its neighbours are done, uses CPU time. Where a process with n busy threads used
much less than n times the time that has passed, some of its threads were waiting for a core.
"""

import time

QUIET_SHARE = 0.8
"""The least share of its threads' time that an undisturbed step uses as CPU time. It is below 1 since llama.cpp
computes a small part of each step with one thread, while the others spin or sleep."""

SHORT_SECONDS = 0.002
"""A shorter step is never called disturbed: most of it is preparation, during which most threads sleep."""


class CpuUse:
    """Measures the time that passes from `start` to `stop`, and the CPU time that this process uses meanwhile."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._wall = self._cpu = self._used = 0.0

    def start(self) -> None:
        """Start measuring."""
        self._cpu = time.process_time()
        self._wall = time.monotonic()

    def stop(self) -> float:
        """Stop measuring, and return how many seconds have passed."""
        self.seconds = time.monotonic() - self._wall
        self._used = time.process_time() - self._cpu
        return self.seconds

    def disturbed(self, threads: int) -> bool:
        """Return whether threads had to wait for cores, of `threads` threads that had work all the time."""
        return self.seconds > SHORT_SECONDS and self._used < QUIET_SHARE * threads * self.seconds
