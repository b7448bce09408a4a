"""Share the physical cores among the engines that are decoding, and lend some to jobs of the sandbox. Pure.

If there are more engines than cores, they take turns of `TURN_SECONDS`. The most urgent ones come first, but an engine
that has waited for `PATIENCE_SECONDS` comes before all others, so that none starves.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.pool.placement import ReplicaId, Topology

TURN_SECONDS: Final = 0.25
PATIENCE_SECONDS: Final = 2.0
LENT_SHARE: Final = 0.125
"""The share of its speed that decoding may lose to urgent jobs, and so the share of the cores that they may borrow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingEngine:
    """An engine that has work. All times are in seconds of one clock."""

    replica_id: ReplicaId
    ceiling: int | None = None
    """The most threads that it may have; None for no limit."""
    node: int | None = None
    """The NUMA node that it is bound to; None for no binding."""
    due: float = 0.0
    """When its most urgent work should be done."""
    running: bool = False
    since: float = 0.0
    """Since when it is running, or waiting for its turn."""


def lendable_cores(topology: Topology) -> int:
    """Return how many whole cores engines may lend; 0 on a small machine, where jobs get a part of one instead."""
    return int(LENT_SHARE * topology.cores)


def share_cores(
    topology: Topology, engines: Iterable[DecodingEngine], now: float = 0.0, lent: int = 0
) -> dict[ReplicaId, int]:
    """Return how many threads each engine gets; 0 for one that has to wait for its turn.

    `lent` cores are left to jobs.

    Engines that run get equal shares, but not more than their ceiling, and together not more than the cores of their
    node or of the machine. Cores that remain go to the most urgent engines. A single engine gets all cores.
    """
    queue = sorted(engines, key=lambda engine: _rank(engine, now))
    shares = {engine.replica_id: 0 for engine in queue}
    left = topology.cores - lent
    free = {node.id: len(node.cores) for node in topology.nodes}
    unsatisfied: Sequence[DecodingEngine] = queue
    while left and unsatisfied:
        growing: list[DecodingEngine] = []
        for engine in unsatisfied:
            if left and (engine.node is None or free[engine.node]):
                shares[engine.replica_id] += 1
                left -= 1
                if engine.node is not None:
                    free[engine.node] -= 1
                if engine.ceiling is None or shares[engine.replica_id] < engine.ceiling:
                    growing.append(engine)
        unsatisfied = growing
    return shares


def _rank(engine: DecodingEngine, now: float) -> tuple[int, float]:
    """Order engines: those within their turn first, then those that have waited too long, then by what is due."""
    spent = now - engine.since
    if engine.running and spent < TURN_SECONDS:
        return 0, engine.since
    if not engine.running and spent >= PATIENCE_SECONDS:
        return 1, engine.since
    return 2, engine.due
