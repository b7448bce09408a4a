"""Say who goes first, and who gives way when the KV cache is full. Pure.

Everything in the engine that has an order goes by `rank`: the queue, prompt chunks, decode tokens, draft tokens, and
who is preempted. It counts from the arrival and is bounded, so whoever waits becomes the most urgent at last.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

PATIENCE = 30.0
"""Slack counts for less than so many seconds, however much of it there is, and so does the lack of it."""

ALIKE = 0.05
"""Requests whose ranks differ by no more seconds came together, and are as urgent as each other."""


def rank(arrived: float, due: float) -> float:
    """Return by when a request counts as due; the least goes first. Times in seconds, `due` may be infinite.

    Of requests that arrived together the one that is due first comes first, and around 0 a second of slack is a second.
    But a request that came 2 * PATIENCE later than another never goes before it, so a stream of urgent ones starves
    nobody.
    """
    slack = due - arrived
    if math.isinf(slack):
        return arrived + math.copysign(PATIENCE, slack)
    return arrived + PATIENCE * slack / (PATIENCE + abs(slack))


@dataclass(frozen=True, slots=True)
class Holder:
    """A sequence in the KV cache: its rank, and how many cells would be free without it."""

    rank: float
    frees: int


def gives_way(holders: Sequence[Holder]) -> int:
    """Return which of at least two sequences loses its cells: the one with the highest rank that frees any.

    The one with the least rank stays whatever happens. It goes on to its end, so there is always one that does, and as
    ranks are bounded everyone is that one at last.
    """
    first = min(range(len(holders)), key=lambda index: holders[index].rank)
    others = [index for index in range(len(holders)) if index != first]
    return max(others, key=lambda index: (holders[index].frees > 0, holders[index].rank))
