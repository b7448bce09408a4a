"""Decide whether an engine fits into memory, and which idle engines to evict for it. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from orchestrator.pool.placement import ReplicaId


@dataclass(frozen=True, slots=True)
class PoolBudget:
    total: int  # all engines together
    # engines bound to a NUMA node, by node; empty on a machine with one node
    nodes: Mapping[int, int] = field(default_factory=dict)

    def limits(self, node: int | None) -> Iterator[tuple[int | None, int]]:
        """Yield the limits for an engine on `node` as (node, bytes); None is the whole machine."""
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
    last_used: float  # by any clock: only the order matters
    node: int | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """The engine can be loaded after those in `evicted` (least recently used first) have stopped."""

    evicted: tuple[ReplicaId, ...]


@dataclass(frozen=True, slots=True)
class MustWait:
    """The engine fits once engines in use become idle. Now `short` bytes are missing on `node`."""

    short: int
    node: int | None = None


@dataclass(frozen=True, slots=True)
class NeverFits:
    """The engine does not fit next to the pinned ones: it exceeds the `limit` of `node` by `short` bytes."""

    pinned: int
    short: int
    limit: int
    node: int | None = None


Verdict = Admitted | MustWait | NeverFits


def admit(size: int, node: int | None, residents: Iterable[Resident], budget: PoolBudget) -> Verdict:
    """Decide about an engine of `size` bytes on `node`. Evicts as few engines as needed, least recently used first."""
    held = sorted(residents, key=lambda resident: resident.last_used)
    evicted: dict[ReplicaId, Resident] = {}
    for where, limit in budget.limits(node):
        covered = [resident for resident in held if where is None or resident.node == where]
        pinned = sum(resident.bytes for resident in covered if resident.pinned)
        if pinned + size > limit:
            return NeverFits(pinned, pinned + size - limit, limit, where)
        short = sum(resident.bytes for resident in covered if resident.replica_id not in evicted) + size - limit
        for resident in covered:
            if short > 0 and not resident.pinned and not resident.in_use and resident.replica_id not in evicted:
                evicted[resident.replica_id] = resident
                short -= resident.bytes
        if short > 0:
            return MustWait(short, where)
    return Admitted(tuple(evicted))
