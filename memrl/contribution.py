"""Limit what one caller can teach and how much it can do for the router's readiness. Pure.

Whoever runs the machine can change all that was learned anyway, and counts in full. Of any other caller the first
outcomes count in full, and each later one the less the more there were: with S of them in full, the sum of n weights
comes to S * (1 + ln(n / S)). Both an action in like situations and all outcomes of a caller are limited so, since
outcomes of one caller are not independent of each other (compare the effective sample size of clustered samples: Kish,
Survey Sampling, 1965).
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Final

FULL_BY_ACTION: Final = 2.0
"""The sum of weights that a caller's outcomes of one action in like situations may have before they count less."""
FULL_BY_CALLER: Final = 3.0
"""The same for all outcomes of a caller."""
READY_BY_CALLER: Final = 50
"""How many outcomes of one caller count at most for the router's readiness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """What one caller has taught."""

    caller: str
    """Empty for outcomes from before callers were recorded."""
    outcomes: int
    """Outcomes that taught something."""
    drawn: int
    """Those of them whose action the router or the rules chose, and no user forced."""
    told: float
    """The sum of their weights by their evidence."""
    counted: float
    """The sum of the weights with which they were learned from."""


def share(by_action: float, by_caller: float) -> float:
    """Return how much the next outcome of a caller counts, from 0 to 1.

    The arguments are the sums of the weights of the caller's earlier outcomes: of the same action in like situations,
    and of all.
    """
    return min(1.0, FULL_BY_ACTION / max(FULL_BY_ACTION, by_action), FULL_BY_CALLER / max(FULL_BY_CALLER, by_caller))


def readiness(contributions: Iterable[Contribution], trusted: Container[str]) -> int:
    """Return how many outcomes count for the router's readiness: all of `trusted` callers, few of each other one."""
    return sum(one.drawn if one.caller in trusted else min(one.drawn, READY_BY_CALLER) for one in contributions)
