"""The NUMA nodes of a machine, with their cores and their memory. Pure."""

from dataclasses import dataclass
from itertools import chain
from typing import Self

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
