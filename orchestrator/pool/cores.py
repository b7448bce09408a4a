"""Share the physical cores among decoding engines, and lend some to sandbox jobs. Pure.

If there are more engines than cores, they take turns of `TURN_SECONDS`, the most urgent first. An engine that has
waited for `PATIENCE_SECONDS` goes first, so none starves.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.pool.placement import ReplicaId, Topology

TURN_SECONDS: Final = 0.25
PATIENCE_SECONDS: Final = 2.0
# The share of its speed that decoding may lose to urgent jobs, and so the share of the cores it lends.
LENT_SHARE: Final = 0.125


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingEngine:
    """An engine that has work. All times are in seconds of one clock."""

    replica_id: ReplicaId
    ceiling: int | None = None  # most threads; None for no limit
    node: int | None = None  # NUMA node it is bound to
    due: float = 0.0  # when its most urgent work should be done
    running: bool = False
    since: float = 0.0  # start of its turn, or of its wait


def lendable_cores(topology: Topology) -> int:
    # 0 on a small machine, where jobs get a part of a core instead.
    return int(LENT_SHARE * topology.cores)


def share_cores(
    topology: Topology, engines: Iterable[DecodingEngine], now: float = 0.0, lent: int = 0
) -> dict[ReplicaId, int]:
    """Return the threads of each engine; 0 for one that must wait for its turn. `lent` cores are left to jobs.

    Engines get equal shares, up to their ceiling and node. The most urgent get the rest.
    """
    queue = sorted(engines, key=lambda engine: _rank(engine, now))
    shares = {engine.replica_id: 0 for engine in queue}
    remaining = topology.cores - lent
    free = {node.id: len(node.cores) for node in topology.nodes}
    unsatisfied: Sequence[DecodingEngine] = queue
    while remaining and unsatisfied:
        growing: list[DecodingEngine] = []
        for engine in unsatisfied:
            if remaining and (engine.node is None or free[engine.node]):
                shares[engine.replica_id] += 1
                remaining -= 1
                if engine.node is not None:
                    free[engine.node] -= 1
                if engine.ceiling is None or shares[engine.replica_id] < engine.ceiling:
                    growing.append(engine)
        unsatisfied = growing
    return shares


def _rank(engine: DecodingEngine, now: float) -> tuple[int, float]:
    spent = now - engine.since
    # First the engines within their turn, then those that have waited too long, then by urgency.
    if engine.running and spent < TURN_SECONDS:
        return 0, engine.since
    if not engine.running and spent >= PATIENCE_SECONDS:
        return 1, engine.since
    return 2, engine.due
