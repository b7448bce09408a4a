"""Decide whether there is memory to start an engine, and which idle engines to evict for it. Pure.

An engine counts with the bytes that its model needs by estimate or measurement. Engines that are pinned, in use or
loading are never evicted.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from orchestrator.pool.placement import ReplicaId


@dataclass(frozen=True, slots=True)
class PoolBudget:
    """How many bytes engines may take."""

    total: int
    """What all engines together may take."""
    nodes: Mapping[int, int] = field(default_factory=dict)
    """What the engines that are bound to a NUMA node may take, by node. Empty on a machine with one node."""

    def limits(self, node: int | None) -> Iterator[tuple[int | None, int]]:
        """Yield the limits for an engine on this node as (node, bytes); None stands for the whole machine."""
        if node is not None and node in self.nodes:
            yield node, self.nodes[node]
        yield None, self.total


@dataclass(frozen=True, slots=True)
class Resident:
    """An engine that holds memory, or for which memory is reserved."""

    replica_id: ReplicaId
    bytes: int
    pinned: bool
    in_use: bool
    last_used: float
    """When it was last used, by any clock: only the order matters."""
    node: int | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """The engine may be loaded after those in `evicted` (least recently used first) have been stopped."""

    evicted: tuple[ReplicaId, ...]


@dataclass(frozen=True, slots=True)
class MustWait:
    """The engine fits once some of the engines in use are idle. Now `short` bytes are missing on `node`."""

    short: int
    node: int | None = None


@dataclass(frozen=True, slots=True)
class NeverFits:
    """The engine does not fit beside the pinned ones: `short` bytes of the `limit` of `node` are missing."""

    pinned: int
    short: int
    limit: int
    node: int | None = None


Verdict = Admitted | MustWait | NeverFits


def admit(wanted: int, node: int | None, residents: Iterable[Resident], budget: PoolBudget) -> Verdict:
    """Decide about an engine of `wanted` bytes on `node`. As few engines as needed are evicted, by least recent use."""
    held = sorted(residents, key=lambda resident: resident.last_used)
    evicted: dict[ReplicaId, Resident] = {}
    for where, limit in budget.limits(node):
        covered = [resident for resident in held if where is None or resident.node == where]
        pinned = sum(resident.bytes for resident in covered if resident.pinned)
        if pinned + wanted > limit:
            return NeverFits(pinned, pinned + wanted - limit, limit, where)
        short = sum(resident.bytes for resident in covered if resident.replica_id not in evicted) + wanted - limit
        for resident in covered:
            if short > 0 and not resident.pinned and not resident.in_use and resident.replica_id not in evicted:
                evicted[resident.replica_id] = resident
                short -= resident.bytes
        if short > 0:
            return MustWait(short, where)
    return Admitted(tuple(evicted))
