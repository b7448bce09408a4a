"""Limit how much one caller can teach the router, and how far it can make it ready. Pure.

Whoever runs the machine could change what was learned anyway, and counts in full. Of any other caller the first
outcomes count in full and later ones less and less: with S in full, n weights sum to S * (1 + ln(n / S)), since
outcomes of one caller are not independent (effective sample size of clustered samples: Kish, 1965).
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Final

FULL_BY_ACTION: Final = 2.0  # outcomes in full for one caller and action in one context
FULL_BY_CALLER: Final = 3.0  # outcomes in full for one caller
READY_BY_CALLER: Final = 50  # one caller's outcomes that count for readiness at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    caller: str  # empty for outcomes recorded before callers were
    outcomes: int
    drawn: int  # outcomes whose action the router or the rules chose, not the user
    told: float  # the sum of their weights by evidence
    counted: float  # the sum of the weights they were learned with


def share(by_action: float, by_caller: float) -> float:
    """Return the weight of a caller's next outcome, from 0 to 1.

    The arguments are the weights of its earlier outcomes: of the same action in the same context, and of all.
    """
    return min(1.0, FULL_BY_ACTION / max(FULL_BY_ACTION, by_action), FULL_BY_CALLER / max(FULL_BY_CALLER, by_caller))


def readiness(contributions: Iterable[Contribution], trusted: Container[str]) -> int:
    """Return how many outcomes count for readiness: all of `trusted` callers, READY_BY_CALLER at most of any other."""
    return sum(
        contribution.drawn if contribution.caller in trusted else min(contribution.drawn, READY_BY_CALLER)
        for contribution in contributions
    )
