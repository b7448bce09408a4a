"""Compute the priority of a request, and choose which sequence is preempted when the KV cache is full. Pure.

Everything in the engine that has an order goes by priority: the queue, prompt chunks, decode tokens, draft tokens and
preemption. A priority is a time in seconds, and as in vLLM the smallest number comes first. It starts from the time of
arrival and its distance from that is bounded, so every request has the highest priority at last.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

PATIENCE = 30.0
"""The most seconds by which slack, or the lack of it, moves a priority away from the time of arrival."""

ALIKE = 0.05
"""Requests whose priorities differ by at most this many seconds arrived together, and are treated as equal."""


def priority(arrived: float, due: float) -> float:
    """Return the priority of a request that arrived at `arrived` and should be finished by `due`.

    Both are times in seconds on one clock; `due` may be infinite. The smallest priority goes first. Of requests that
    arrived together the one that is due first goes first, and around 0 a second of slack counts as a second. A request
    that arrived 2 * PATIENCE seconds after another never goes before it, so a stream of requests without slack starves
    nobody.
    """
    slack = due - arrived
    if math.isinf(slack):
        return arrived + math.copysign(PATIENCE, slack)
    return arrived + PATIENCE * slack / (PATIENCE + abs(slack))


@dataclass(frozen=True, slots=True)
class CacheHolder:
    """A sequence that holds cells of the KV cache."""

    priority: float
    """The smallest goes first."""
    frees: int
    """How many cells would become free if the sequence lost its own. Cells shared with others stay in use."""


def select_preemption_victim(holders: Sequence[CacheHolder]) -> int:
    """Return the index of the sequence that loses its cells, of at least two: the last by priority that frees any.

    The first by priority is never chosen. It runs to its end, so there is always one that makes progress, and as
    priorities are bounded every sequence becomes the first one at last.
    """
    first = min(range(len(holders)), key=lambda index: holders[index].priority)
    others = [index for index in range(len(holders)) if index != first]
    return max(others, key=lambda index: (holders[index].frees > 0, holders[index].priority))
