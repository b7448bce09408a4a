"""Choose how many threads an engine computes with while other processes use the cores. Pure: time is given.

llama.cpp's threads wait for each other after every operation. If another process uses one of the cores, fewer threads
are faster. How many are best is tried out.
"""

from collections.abc import Iterable
from dataclasses import dataclass

# Steps that take this many times as long as expected are a reason to try other numbers of threads.
SLOWER = 1.5

# Another number of threads is used only if steps take at most this fraction of the time.
BETTER = 0.9

# Steps are judged together once they have taken this many seconds and are this many.
WINDOW_SECONDS, WINDOW_STEPS = 0.1, 8

# The same for steps with a number of threads that is tried.
TRIAL_SECONDS, TRIAL_STEPS = 0.06, 3

# Steps that have taken this many seconds together are judged however few they are.
LONG_WINDOW = 0.4

# Seconds until others are tried. The pause doubles, up to the second value, while the same number of threads wins.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 4.0


@dataclass(slots=True)
class _Window:
    seconds: float = 0.0
    expected: float = 0.0  # how long the steps should have taken
    steps: int = 0
    disturbed: int = 0  # steps in which threads had to wait for cores

    def add(self, seconds: float, expected: float, *, disturbed: bool) -> None:
        self.seconds += seconds
        self.expected += expected
        self.steps += 1
        self.disturbed += disturbed

    def is_full(self, seconds: float, steps: int) -> bool:
        return self.seconds >= LONG_WINDOW or (self.seconds >= seconds and self.steps >= steps)

    @property
    def slowness(self) -> float:
        return self.seconds / self.expected


class ThreadTuner:
    """Chooses the number of `threads` that an engine computes with, at most as many as it was `granted`."""

    def __init__(self, granted: int) -> None:
        self.granted = self.threads = granted
        self._begin(granted)

    def grant(self, threads: int) -> None:
        """Set how many threads the engine may use from now on."""
        if threads != self.granted:
            self._begin(threads)

    def _begin(self, granted: int) -> None:
        self.granted = self.threads = granted
        self._window = _Window()
        self._candidates: list[int] = []
        self._slowness: dict[int, float] = {}
        self._skip = False
        self._pause = FIRST_PAUSE
        self._again_at = 0.0
        self._best = granted

    def observe(self, seconds: float, expected: float, now: float, *, disturbed: bool) -> None:
        """Record a step that took `seconds` with the current `threads`, and set them for the next step.

        `expected` is the time on a quiet machine with all granted threads. `disturbed`: threads had to wait for a core.
        `now` is in seconds on a monotonic clock.
        """
        if self.granted == 1:
            return
        if self._skip and seconds < TRIAL_SECONDS:  # the first step with another number also starts or ends threads
            self._skip = False
            return
        self._window.add(seconds, expected, disturbed=disturbed)
        if self._candidates:
            if self._window.is_full(TRIAL_SECONDS, TRIAL_STEPS):
                self._slowness[self.threads] = self._window.slowness
                self._next_candidate(now)
        elif self._window.is_full(WINDOW_SECONDS, WINDOW_STEPS):
            self._judge(now)

    def _judge(self, now: float) -> None:
        window, self._window = self._window, _Window()
        troubled = window.slowness > SLOWER or 2 * window.disturbed > window.steps
        if self.threads == self.granted and not troubled:
            self._pause = FIRST_PAUSE
        elif now >= self._again_at:
            self._slowness.clear()
            self._candidates = candidates(self.threads, self.granted)
            self._use(self._candidates[0])

    def _next_candidate(self, now: float) -> None:
        before = self._candidates.pop(0)
        if self._candidates:
            self._use(self._candidates[0])
            return
        least = min(self._slowness, key=lambda threads: (self._slowness[threads], threads))
        most = self.granted
        best = least if self._slowness[least] < BETTER * self._slowness.get(most, self._slowness[before]) else most
        self._pause = FIRST_PAUSE if best != self._best else min(2 * self._pause, LONGEST_PAUSE)
        self._again_at = now + self._pause
        self._best = best
        self._use(best)

    def _use(self, threads: int) -> None:
        self._skip = threads != self.threads
        self.threads = threads
        self._window = _Window()


def candidates(threads: int, granted: int) -> list[int]:
    """Return the numbers of threads to try, the largest first."""
    near: Iterable[int] = (granted, granted - 1, 2 * threads, threads + 1, threads, threads - 1, threads // 2)
    return sorted({number for number in near if 1 <= number <= granted}, reverse=True)
