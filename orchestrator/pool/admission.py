"""Decide whether an engine may be started now, and which idle ones have to go for it. Pure.

Bytes are what a model needs by estimate or by measurement. Pinned engines stay, and so do those in use or loading.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from orchestrator.pool.placement import Place


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes that all engines may take together, and those that are bound to a node."""

    total: int
    nodes: Mapping[int, int] = field(default_factory=dict)

    def limits(self, node: int | None) -> Iterator[tuple[int | None, int]]:
        """Yield what bounds an engine on this node: the narrower limit first, None standing for the whole machine."""
        if node is not None and node in self.nodes:
            yield node, self.nodes[node]
        yield None, self.total


@dataclass(frozen=True, slots=True)
class Resident:
    """An engine that holds memory, or has been promised it. `last_used` orders them; any clock will do."""

    place: Place
    bytes: int
    pinned: bool
    in_use: bool
    last_used: float
    node: int | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """Load it, after the engines in `evicted` (least recently used first) have been stopped."""

    evicted: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class MustWait:
    """It fits, but only after some of the engines that are in use have become idle: `short` bytes of the limit."""

    short: int
    node: int | None = None


@dataclass(frozen=True, slots=True)
class NeverFits:
    """Engines that stay leave too little of a `limit`, that of `node` or of the machine: it lacks `short` bytes."""

    pinned: int
    short: int
    limit: int
    node: int | None = None


Verdict = Admitted | MustWait | NeverFits


def admit(wanted: int, node: int | None, residents: Iterable[Resident], budget: Budget) -> Verdict:
    """Decide about an engine of `wanted` bytes on `node`. Evicts the least recently used, and as few as it takes."""
    held = sorted(residents, key=lambda resident: resident.last_used)
    evicted: dict[Place, Resident] = {}
    for where, limit in budget.limits(node):
        covered = [resident for resident in held if where is None or resident.node == where]
        pinned = sum(resident.bytes for resident in covered if resident.pinned)
        if pinned + wanted > limit:
            return NeverFits(pinned, pinned + wanted - limit, limit, where)
        short = sum(resident.bytes for resident in covered if resident.place not in evicted) + wanted - limit
        for resident in covered:
            if short > 0 and not resident.pinned and not resident.in_use and resident.place not in evicted:
                evicted[resident.place] = resident
                short -= resident.bytes
        if short > 0:
            return MustWait(short, where)
    return Admitted(tuple(evicted))
