"""Say how much processor time a job gets next to other processes, and change that while it runs."""

import math
from collections.abc import Callable

_STEP = 1.25
"""A niceness gives this many times the share of the next one (sched(7))."""
DEFAULT = 10
"""The niceness of a job that nobody gives another: about a tenth of a core next to a process of ours."""
LOWEST = 19
"""The niceness of the least weight."""
IDLE = 20
"""Instead of a niceness: the job gets only what hardly anybody else wants, so it can starve."""


class Niceness:
    """The niceness of a job, 0 to 19 or IDLE, on top of our own. It can be set while the job runs.

    The meaning is that of nice(1), but it counts for all processes of the job together: with a control group for
    processor time the job weighs as much as a single process of this niceness.
    """

    def __init__(self, value: int = DEFAULT) -> None:
        self.value = value
        self._apply: Callable[[int], None] | None = None

    def set(self, value: int) -> None:
        """Set the niceness. A job that runs gets its new share at once."""
        if value != self.value:
            self.value = value
            if self._apply is not None:
                self._apply(value)

    def bind(self, apply: Callable[[int], None]) -> None:
        """Call `apply` with the niceness now and whenever it changes."""
        self._apply = apply
        apply(self.value)

    def release(self) -> None:
        """Call nothing any more: the job has ended."""
        self._apply = None


def weight(niceness: int) -> float:
    """Return the share of processor time relative to a process of niceness 0, as the kernel has it."""
    return float(_STEP ** -min(niceness, LOWEST))


def niceness_of(weight: float) -> int:
    """Return the niceness, 0 to 19, whose weight is nearest."""
    return min(LOWEST, max(0, round(-math.log(weight, _STEP))))
