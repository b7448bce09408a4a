"""Decide on which NUMA node of a machine each replica of a model runs, and which replica serves a request. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Final, Self

ReplicaId = tuple[str, int]
"""Identifies a replica: the model's id, and the number of the replica from 0."""

Core = tuple[int, ...]
"""A physical core: the logical CPUs that are its hardware threads, which share its arithmetic units."""


@dataclass(frozen=True, slots=True)
class Node:
    """A NUMA node: its number, the cores that this process may use of it, and its memory in bytes."""

    id: int
    cores: tuple[Core, ...]
    memory: int

    @property
    def cpus(self) -> tuple[int, ...]:
        """The logical CPUs of all its cores."""
        return tuple(sorted(chain.from_iterable(self.cores)))


@dataclass(frozen=True, slots=True)
class Topology:
    """The nodes that have cores for this process, at least one, ordered by number."""

    nodes: tuple[Node, ...]

    @classmethod
    def flat(cls, cores: int, memory: int) -> Self:
        """Return a machine with one node, whose `cores` have one logical CPU each, and `memory` bytes."""
        return cls((Node(0, tuple((cpu,) for cpu in range(cores)), memory),))

    @property
    def cores(self) -> int:
        """How many cores there are in all."""
        return sum(len(node.cores) for node in self.nodes)

    def cores_of(self, node: int | None) -> int:
        """Return how many cores a process has that is bound to `node`, or to no node."""
        return self.cores if node is None else len(self.node(node).cores)

    def node(self, number: int) -> Node:
        """Return the node with this number, which must exist."""
        return next(node for node in self.nodes if node.id == number)


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
class ReplicaCandidate:
    """A replica that takes new requests."""

    number: int
    requests: int
    """How many requests use it now."""
    slots: int
    """How many requests it serves at a time."""
    held: int
    """How many blocks of the prompt it probably holds."""


CROWDED_BY: Final = 2
CROWDED_TIMES: Final = 1.5
"""A replica is crowded if it serves more than so many requests beyond so many times those of the least busy one."""


def choose_replica(candidates: Iterable[ReplicaCandidate]) -> int | None:
    """Return the number of the replica that serves a request, or None if there is none.

    It is the one that holds the longest prefix of the prompt, then the one with the fewest requests, as in the
    cache-aware policy of SGLang's router: a crowded replica comes later, because a prefix is computed once by each
    replica, and by all of them at the same time, while a crowd slows down every token of every answer. Replicas without
    a free slot come last: computing the prefix again takes less time than waiting for a slot.
    """
    found = [*candidates]
    bound = CROWDED_BY + CROWDED_TIMES * min((one.requests for one in found), default=0)

    def rank(one: ReplicaCandidate) -> tuple[bool, bool, int, int, int]:
        return one.requests >= one.slots, one.requests > bound, -one.held, one.requests, one.number

    return min(found, key=rank).number if found else None
