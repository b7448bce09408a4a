"""Decide on which NUMA node each replica runs, and which replica serves a request. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Final, Self

ReplicaId = tuple[str, int]  # the model's id, and the replica's number from 0

Core = tuple[int, ...]  # A physical core: the logical CPUs that share its arithmetic units.


@dataclass(frozen=True, slots=True)
class Node:
    """A NUMA node: its number, the cores this process may use, and its memory in bytes."""

    id: int
    cores: tuple[Core, ...]
    memory: int

    @property
    def cpus(self) -> tuple[int, ...]:
        return tuple(sorted(chain.from_iterable(self.cores)))


@dataclass(frozen=True, slots=True)
class Topology:
    """The nodes with cores for this process, at least one, ordered by number."""

    nodes: tuple[Node, ...]

    @classmethod
    def flat(cls, cores: int, memory: int) -> Self:
        """Return a machine with one node and one CPU per core."""
        return cls((Node(0, tuple((cpu,) for cpu in range(cores)), memory),))

    @property
    def cores(self) -> int:
        return sum(len(node.cores) for node in self.nodes)

    def cores_of(self, node: int | None) -> int:
        return self.cores if node is None else len(self.node(node).cores)

    def node(self, number: int) -> Node:
        # it must exist
        return next(node for node in self.nodes if node.id == number)


def nodes_for(topology: Topology, instances: int, numa: int | None) -> tuple[int | None, ...]:
    """Return the node of each replica of a model; None is no binding.

    `numa` binds a single replica to that node; else up to `instances` replicas get a node each.
    """
    # A second replica on the same node would only share its cores and memory.
    count = min(instances, len(topology.nodes))
    if numa is not None and len(topology.nodes) > 1:
        return (numa,)
    return tuple(node.id for node in topology.nodes[:count]) if count > 1 else (None,)


@dataclass(frozen=True, slots=True)
class ReplicaCandidate:
    number: int
    requests: int  # in use now
    slots: int  # requests that it serves at a time
    held: int  # blocks of the prompt that it probably holds


CROWDED_BY: Final = 2
# A replica is crowded with more than CROWDED_BY requests beyond CROWDED_TIMES those of the least busy one.
CROWDED_TIMES: Final = 1.5


def choose_replica(candidates: Iterable[ReplicaCandidate]) -> int | None:
    """Return the number of the replica that serves a request, or None.

    The longest held prefix wins, then the fewest requests, as in SGLang's cache-aware router. Crowded replicas come
    later, those without a free slot last.
    """
    replicas = [*candidates]
    bound = CROWDED_BY + CROWDED_TIMES * min((replica.requests for replica in replicas), default=0)

    def rank(replica: ReplicaCandidate) -> tuple[bool, bool, int, int, int]:
        # Each replica computes a prefix once, all at the same time, but a crowd slows down every token. Computing a
        # prefix again is also faster than waiting for a slot.
        return (
            replica.requests >= replica.slots,
            replica.requests > bound,
            -replica.held,
            replica.requests,
            replica.number,
        )

    return min(replicas, key=rank).number if replicas else None
