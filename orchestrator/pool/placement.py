"""Say on which node each replica of a model runs, and which replica a request goes to. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.pool.topology import Topology

Place = tuple[str, int]
"""A model's id and the number of one of its instances, from 0."""


def nodes_for(topology: Topology, instances: int, numa: int | None) -> tuple[int | None, ...]:
    """Return the node of each replica that a model has on this machine, None for one that runs on all of them.

    On a machine of one node there is one, since two would only share what one has, and it need not be bound. Where
    there are more, `numa` binds the only replica to that node, and several instances get a node each, as many as there
    are nodes.
    """
    count = min(instances, len(topology.nodes))
    if numa is not None and len(topology.nodes) > 1:
        return (numa,)
    return tuple(node.id for node in topology.nodes[:count]) if count > 1 else (None,)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica that takes requests in: how many it has of how many at a time, and how much it holds of a prompt."""

    number: int
    requests: int
    slots: int
    held: int


def choose(candidates: Iterable[Candidate]) -> int | None:
    """Return which replica a request goes to, or None without any.

    The one that holds the longest beginning of the prompt, then the least loaded. One whose slots are all taken comes
    after those with a free slot: what it holds is computed again sooner than its queue moves on.
    """
    order = sorted(candidates, key=lambda one: (one.requests >= one.slots, -one.held, one.requests, one.number))
    return order[0].number if order else None
