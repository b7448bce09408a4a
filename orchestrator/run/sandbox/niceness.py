"""A job's niceness: its processor time next to other processes, which can change while it runs."""

import math
from collections.abc import Callable

# A niceness gives this many times the share of the next one (sched(7)).
_STEP = 1.25
DEFAULT = 10  # about a tenth of a core next to a process of ours
LOWEST = 19  # the least weight
# Instead of a niceness: only what hardly anybody else wants, so the job can starve.
IDLE = 20


class Niceness:
    """The niceness of a job, 0 to 19 or IDLE, on top of our own.

    As in nice(1), but for all processes of the job together: with a control group the job weighs as much as one process
    of this niceness.
    """

    def __init__(self, value: int = DEFAULT) -> None:
        self.value = value
        self._apply: Callable[[int], None] | None = None

    def set(self, value: int) -> None:
        """Set the niceness. A running job gets its new share at once."""
        if value != self.value:
            self.value = value
            if self._apply is not None:
                self._apply(value)

    def bind(self, apply: Callable[[int], None]) -> None:
        """Call `apply` with the niceness now and whenever it changes."""
        self._apply = apply
        apply(self.value)

    def release(self) -> None:
        self._apply = None


def weight(niceness: int) -> float:
    return float(_STEP ** -min(niceness, LOWEST))


def niceness_of(weight: float) -> int:
    return min(LOWEST, max(0, round(-math.log(weight, _STEP))))
