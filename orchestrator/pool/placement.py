"""Decide on which NUMA node each replica of a model runs, and which replica serves a request. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.pool.topology import Topology

ReplicaId = tuple[str, int]
"""Identifies a replica: the model's id, and the number of the replica from 0."""


def nodes_for(topology: Topology, instances: int, numa: int | None) -> tuple[int | None, ...]:
    """Return the node of each replica of a model on this machine; None for a replica that is bound to no node.

    A machine with one node has one replica, because a second one would only share its cores and memory. Otherwise
    `numa` binds a single replica to that node, or up to `instances` replicas get a node each.
    """
    count = min(instances, len(topology.nodes))
    if numa is not None and len(topology.nodes) > 1:
        return (numa,)
    return tuple(node.id for node in topology.nodes[:count]) if count > 1 else (None,)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica that takes new requests."""

    number: int
    requests: int
    """How many requests use it now."""
    slots: int
    """How many requests it serves at a time."""
    held: int
    """How many blocks of the prompt it probably holds."""


def choose(candidates: Iterable[Candidate]) -> int | None:
    """Return the number of the replica that serves a request, or None if there is none.

    It is the one that holds the longest prefix of the prompt, then the one with the fewest requests. Replicas without a
    free slot come last: computing the prefix again takes less time than waiting for a slot.
    """
    order = sorted(candidates, key=lambda one: (one.requests >= one.slots, -one.held, one.requests, one.number))
    return order[0].number if order else None
