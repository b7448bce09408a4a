"""Compute the priority of a request, and choose which sequence is preempted when the KV cache is full. Pure.

Priorities also order prompt chunks, decode tokens and draft tokens. As in vLLM, the smallest goes first.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

# The most seconds by which slack, or the lack of it, moves a priority away from the time of arrival.
PATIENCE = 30.0

# Requests whose priorities differ by at most this many seconds arrived together, and count as equal.
ALIKE = 0.05


def priority(arrived: float, due: float) -> float:
    """Return the priority of a request that arrived at `arrived` and is due at `due` (may be infinite), in seconds.

    A request that arrived 2 * PATIENCE seconds after another never goes before it, so nobody starves.
    """
    # Near 0, a second of slack counts as a second; it never counts for more than PATIENCE.
    slack = due - arrived
    if math.isinf(slack):
        return arrived + math.copysign(PATIENCE, slack)
    return arrived + PATIENCE * slack / (PATIENCE + abs(slack))


@dataclass(frozen=True, slots=True)
class CacheHolder:
    priority: float
    frees: int  # cells that become free if the sequence loses its own; shared cells stay in use


def select_preemption_victim(holders: Sequence[CacheHolder]) -> int:
    """Return the index of the sequence to preempt, of at least two: the last by priority that frees any cells."""
    # The first by priority is never chosen. It runs to its end, so one always makes progress, and as priorities are
    # bounded, every sequence becomes the first in the end.
    first = min(range(len(holders)), key=lambda index: holders[index].priority)
    candidates = [index for index in range(len(holders)) if index != first]
    return max(candidates, key=lambda index: (holders[index].frees > 0, holders[index].priority))
