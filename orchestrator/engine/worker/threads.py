"""Choose with how many threads an engine computes, when other processes use the cores too. Pure: time is given.

llama.cpp's threads wait for each other after every operation, so the slowest decides. Where another process uses one of
the cores, a thread that shares that core keeps all others waiting, and fewer threads, which leave the core alone, are
faster. How many are best depends on what else runs, and changes with it. So it is tried out: when steps take longer
than they should, or threads had to wait for cores, a few steps are computed with each of some numbers of threads, and
the fastest is used. After a while that is repeated, so that all cores are used again when they are free.
"""

from collections.abc import Iterable
from dataclasses import dataclass

SLOWER = 1.5
"""Steps that take this many times as long as expected are a reason to try other numbers of threads."""

BETTER = 0.9
"""Another number of threads is used only where steps take at most this part of the time."""

WINDOW_SECONDS, WINDOW_STEPS = 0.1, 8
"""Steps are judged together once they have taken this long and are this many."""

TRIAL_SECONDS, TRIAL_STEPS = 0.06, 3
"""The same for steps with a number of threads that is tried."""

LONG_WINDOW = 0.4
"""Steps that have taken this many seconds together are judged however few they are."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 4.0
"""How many seconds a choice is kept before others are tried. It doubles, up to the second one, while the same number of
threads turns out best."""


@dataclass(slots=True)
class _Window:
    """Some steps that were computed with one number of threads."""

    seconds: float = 0.0
    """How long they took."""
    expected: float = 0.0
    """How long they should have taken."""
    steps: int = 0
    disturbed: int = 0
    """In how many of them threads had to wait for cores."""

    def add(self, seconds: float, expected: float, *, disturbed: bool) -> None:
        self.seconds += seconds
        self.expected += expected
        self.steps += 1
        self.disturbed += disturbed

    def is_full(self, seconds: float, steps: int) -> bool:
        return self.seconds >= LONG_WINDOW or (self.seconds >= seconds and self.steps >= steps)

    @property
    def slowness(self) -> float:
        """How many times as long the steps took as they should have."""
        return self.seconds / self.expected


class ThreadTuner:
    """Chooses the number of `threads` that an engine computes with, at most as many as it was `granted`."""

    def __init__(self, granted: int) -> None:
        self.granted = self.threads = granted
        self._begin(granted)

    def grant(self, threads: int) -> None:
        """Note that the engine may use this many threads from now on. All of them are used at first."""
        if threads != self.granted:
            self._begin(threads)

    def _begin(self, granted: int) -> None:
        self.granted = self.threads = granted
        self._window = _Window()
        self._candidates: list[int] = []
        self._found: dict[int, float] = {}
        self._skip = False
        self._pause = FIRST_PAUSE
        self._again_at = 0.0
        self._best = granted

    def observe(self, seconds: float, expected: float, now: float, *, disturbed: bool) -> None:
        """Note that a step took `seconds` with the present number of `threads`, and set it for the next step.

        `expected` is how many seconds it takes on a quiet machine with all threads that were granted, and `disturbed`
        says whether threads had to wait for a core. `now` is the time in seconds on any clock that does not go back.
        """
        if self.granted == 1:
            return
        if self._skip and seconds < TRIAL_SECONDS:  # the first step with another number also starts or ends threads
            self._skip = False
            return
        self._window.add(seconds, expected, disturbed=disturbed)
        if self._candidates:
            if self._window.is_full(TRIAL_SECONDS, TRIAL_STEPS):
                self._found[self.threads] = self._window.slowness
                self._next_candidate(now)
        elif self._window.is_full(WINDOW_SECONDS, WINDOW_STEPS):
            self._judge(now)

    def _judge(self, now: float) -> None:
        window, self._window = self._window, _Window()
        troubled = window.slowness > SLOWER or 2 * window.disturbed > window.steps
        if self.threads == self.granted and not troubled:
            self._pause = FIRST_PAUSE
        elif now >= self._again_at:
            self._found.clear()
            self._candidates = candidates(self.threads, self.granted)
            self._use(self._candidates[0])

    def _next_candidate(self, now: float) -> None:
        before = self._candidates.pop(0)
        if self._candidates:
            self._use(self._candidates[0])
            return
        least = min(self._found, key=lambda threads: (self._found[threads], threads))
        most = self.granted
        best = least if self._found[least] < BETTER * self._found.get(most, self._found[before]) else most
        self._pause = FIRST_PAUSE if best != self._best else min(2 * self._pause, LONGEST_PAUSE)
        self._again_at = now + self._pause
        self._best = best
        self._use(best)

    def _use(self, threads: int) -> None:
        self._skip = threads != self.threads
        self.threads = threads
        self._window = _Window()


def candidates(threads: int, granted: int) -> list[int]:
    """Return the numbers of threads to try, the largest first. `threads` are used now, and `granted` may be used."""
    near: Iterable[int] = (granted, granted - 1, 2 * threads, threads + 1, threads, threads - 1, threads // 2)
    return sorted({number for number in near if 1 <= number <= granted}, reverse=True)
