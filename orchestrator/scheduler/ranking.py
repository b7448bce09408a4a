"""Rank steps: which of those that are ready goes first."""

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.analysis import StepGraph
from orchestrator.critical_path import slack
from orchestrator.events import Mode


@dataclass(frozen=True, slots=True)
class Rank:
    """`slack` is in seconds, from the start of the plan; `place` sorts ready steps, the smallest goes first."""

    slack: float = 0.0
    place: tuple[float, int] = (0.0, 0)


def rank(graph: StepGraph, mode: Mode, seconds: Mapping[str, float]) -> Mapping[str, Rank]:
    """Rank every step of the graph by the predicted `seconds` of each. Linear in steps and edges.

    Of steps that could all start now, the one with the least slack left is the one with the longest chain of work from
    it to the end of the plan (its own time included), whatever time it is. That differs from the least slack at the
    start of the plan, which does not know that a step had to wait for a free slot. Equals go in document order. In
    serial mode steps go in topological, then document order.
    """
    slacks = slack(graph.before, graph.order, seconds)
    if mode == "serial":
        return {step: Rank(slacks[step], (0.0, place)) for place, step in enumerate(graph.order)}
    chains = longest_chains(graph, seconds)
    return {step: Rank(slacks[step], (-chains[step], place)) for place, step in enumerate(graph.steps)}


def longest_chains(graph: StepGraph, seconds: Mapping[str, float]) -> Mapping[str, float]:
    """Return for each step the time of the longest chain that begins with it."""
    chains: dict[str, float] = {}
    for step in reversed(graph.order):
        chains[step] = seconds[step] + max((chains[after] for after in graph.after[step]), default=0.0)
    return chains
