"""Find out whether other processes had the cores while this one computed."""

import time

# The least share of its threads' time that an undisturbed step uses as CPU time. It is below 1 because llama.cpp
# computes a small part of each step with one thread, while the others spin or sleep.
QUIET_SHARE = 0.8

# A shorter step never counts as disturbed: most of it is preparation, during which most threads sleep.
SHORT_SECONDS = 0.002


class CpuUse:
    """Elapsed seconds and CPU time of this process, from `start` to `stop`."""

    def __init__(self) -> None:
        self.seconds = self.cpu_seconds = 0.0
        self._wall = self._cpu = 0.0

    def start(self) -> None:
        self._cpu = time.process_time()
        self._wall = time.monotonic()

    def stop(self) -> float:
        """Stop measuring, and return the elapsed seconds."""
        self.seconds = time.monotonic() - self._wall
        self.cpu_seconds = time.process_time() - self._cpu
        return self.seconds

    def disturbed(self, threads: int) -> bool:
        """Return whether any of `threads` busy threads had to wait for a core."""
        # A thread that computes, or spins until its neighbours are done, uses CPU time, unless it waits for a core.
        return self.seconds > SHORT_SECONDS and self.cpu_seconds < QUIET_SHARE * threads * self.seconds
