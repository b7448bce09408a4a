"""Order the ready steps by rank, and decide which may start next under the concurrency limits."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final

from orchestrator.task.analysis import StepGraph
from orchestrator.task.critical_path import slack
from orchestrator.task.modes import Mode
from orchestrator.task.taskir.models import Agent, Parallelism

SortKey = tuple[float, int, int]  # of ready steps; the smallest goes first

Lane = tuple[str, str]  # a limit that a step counts against: on all steps, on worker roles, or on one role

ALL: Lane = ("all", "")
WORKERS: Lane = ("workers", "")


@dataclass(frozen=True, slots=True)
class ConcurrencyLimits:
    """How many steps may run at once: in total, in each role, and in worker roles together."""

    slots: Mapping[Lane, float]  # a lane that is not in it has no limit
    workers: frozenset[str]  # the roles that count as workers

    @classmethod
    def of(cls, mode: Mode, parallelism: Parallelism, agents: Sequence[Agent]) -> "ConcurrencyLimits":
        """Read the limits of a task. Workers are the role of that name and those the agents put into tier C."""
        slots: dict[Lane, float] = {
            ALL: 1 if mode == "serial" else parallelism.max_concurrent_steps or inf,
            WORKERS: parallelism.max_concurrent_workers or inf,
        }
        for agent in agents:
            lane = ("role", agent.role)
            slots[lane] = min(slots.get(lane, inf), agent.max_concurrency or inf)
        return cls(slots, frozenset({"worker"} | {agent.role for agent in agents if agent.tier == "C"}))

    def lanes(self, role: str | None) -> tuple[Lane, ...]:
        """Return the lanes in which a step of this role takes a slot. The role is None for work without a model."""
        if role is None:
            return (ALL,)
        return (ALL, WORKERS, ("role", role)) if role in self.workers else (ALL, ("role", role))


class ReadyQueue:
    """The ready steps, in one heap for each role, and the slots that running steps hold.

    With n ready steps, `ready` and `replace` are O(n); every other call is O(log n + roles), amortized.
    """

    def __init__(self, limits: ConcurrencyLimits) -> None:
        self.limits = limits
        self._ready: dict[str, tuple[SortKey, str | None]] = {}
        self._heaps: dict[str | None, list[tuple[SortKey, str]]] = {}
        self.holders: dict[str, str | None] = {}  # the steps that hold a slot, each with its role
        self._used: Counter[Lane] = Counter()

    @property
    def ready(self) -> frozenset[str]:
        return frozenset(self._ready)

    def push(self, step: str, role: str | None, place: SortKey) -> None:
        self._ready[step] = (place, role)
        heappush(self._heaps.setdefault(role, []), (place, step))

    def remove(self, step: str) -> None:
        del self._ready[step]  # its entry stays in the heap until it comes to the top

    def first(self) -> str | None:
        """Return the first ready step that the limits admit, without removing it; None if there is none."""
        heads = [heap[0] for role, heap in self._heaps.items() if self._fresh(role, heap) and self._admits(role)]
        return min(heads)[1] if heads else None

    def replace(self, places: Mapping[str, SortKey]) -> None:
        """Sort the ready steps again, by new places."""
        self._ready = {step: (places[step], role) for step, (_, role) in self._ready.items()}
        self._heaps = {}
        for step, (place, role) in self._ready.items():
            self._heaps.setdefault(role, []).append((place, step))
        for heap in self._heaps.values():
            heapify(heap)

    def hold(self, step: str, role: str | None) -> None:
        """Take a slot for a step that has started. The limits are not enforced here."""
        self.holders[step] = role
        self._used.update(self.limits.lanes(role))

    def release(self, step: str) -> None:
        """Give the slot of a step back, if it holds one."""
        if step in self.holders:
            self._used.subtract(self.limits.lanes(self.holders.pop(step)))

    def admits_instead(self, held: str | None, role: str) -> bool:
        """Return whether a step may exchange its slot of the role `held` for a slot of another role."""
        given_back = self.limits.lanes(held)
        slots = self.limits.slots
        return all(self._used[lane] - (lane in given_back) < slots.get(lane, inf) for lane in self.limits.lanes(role))

    def _admits(self, role: str | None) -> bool:
        slots = self.limits.slots
        return all(self._used[lane] < slots.get(lane, inf) for lane in self.limits.lanes(role))

    def _fresh(self, role: str | None, heap: list[tuple[SortKey, str]]) -> bool:
        # Drops entries of steps that were removed or moved; false if none is left.
        while heap and self._ready.get(heap[0][1]) != (heap[0][0], role):
            heappop(heap)
        return bool(heap)


# Slack of what the user wants first, in seconds. Engines bound what slack is worth, so this is worth nearly all of it.
FIRST: Final = -3600.0


@dataclass(frozen=True, slots=True)
class Rank:
    """The position of a step in its plan."""

    slack: float = 0.0  # predicted seconds by which the step may be late without delaying the end of the plan
    place: tuple[float, int] = (0.0, 0)  # the smallest goes first

    @property
    def first(self) -> "Rank":
        """The position of the same step before all that are not first, too."""
        return Rank(FIRST, (-inf, self.place[1]))


def rank(graph: StepGraph, mode: Mode, seconds: Mapping[str, float]) -> Mapping[str, Rank]:
    """Rank every step of the graph by the predicted `seconds` of each. Linear in steps and edges."""
    slacks = slack(graph.before, graph.order, seconds)
    if mode == "serial":
        return {step: Rank(slacks[step], (0.0, place)) for place, step in enumerate(graph.order)}
    # The longest chain of work to the end of the plan goes first, of equal ones in document order. The slack at the
    # start of the plan would not do, since steps may have waited for a free slot.
    chains = longest_chains(graph, seconds)
    return {step: Rank(slacks[step], (-chains[step], place)) for place, step in enumerate(graph.steps)}


def longest_chains(graph: StepGraph, seconds: Mapping[str, float]) -> Mapping[str, float]:
    """Return for each step the seconds of the longest chain that starts with it, its own included."""
    chains: dict[str, float] = {}
    for step in reversed(graph.order):
        chains[step] = seconds[step] + max((chains[after] for after in graph.after[step]), default=0.0)
    return chains
