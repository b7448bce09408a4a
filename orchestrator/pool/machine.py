"""The cores, NUMA nodes and memory that this process may use, and on which node each replica of a model runs."""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final, Self

import psutil

from orchestrator.engine.processor import usable_cpus

_SYSTEM: Final = Path("/sys/devices/system")
_CGROUPS: Final = Path("/sys/fs/cgroup")
_OWN_CGROUP: Final = Path("/proc/self/cgroup")
_SPARED: Final = 0.1

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


def read_topology(system: Path = _SYSTEM, usable: int | None = None) -> Topology:
    """Return the nodes, cores and memory that this process may use.

    One node with everything if Linux lists no NUMA nodes, or if a control group allows less CPU time than all cores
    have: then `usable` cores (None: read here). Without Linux's core topology, psutil counts the cores.
    """
    cores, most = _cores(system, sorted(os.sched_getaffinity(0))), usable_cpus() if usable is None else usable
    nodes = tuple(_nodes(system, cores)) if most >= len(cores) else ()
    cores = cores[:most]
    if len(nodes) < 2 or sum(len(node.cores) for node in nodes) != len(cores):
        nodes = (Node(nodes[0].id if nodes else 0, cores, psutil.virtual_memory().total),)
    return Topology(nodes)


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """The bytes that a control group may take, and how many are free. Cached files count as free."""

    most: int
    free: int


def memory_budget(limits: Iterable[MemoryLimit] | None = None) -> int:
    """Return how many bytes models may take: nine tenths of the free memory, within control groups."""
    groups = memory_limits() if limits is None else limits
    free = min([psutil.virtual_memory().available, *(limit.free for limit in groups)])
    return max(0, int(free * (1 - _SPARED)))


def memory_limits(groups: Path = _CGROUPS, own: Path = _OWN_CGROUP) -> list[MemoryLimit]:
    """Return the memory limits of this process's control group (version 2) and its visible parents."""
    try:
        listed = own.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    (inner,) = [line[len("0::/") :] for line in listed if line.startswith("0::/")] or [""]
    folder = groups / inner
    around = (folder, *folder.parents)
    return list(filter(None, map(_memory_limit, around[: around.index(groups) + 1])))


def _memory_limit(group: Path) -> MemoryLimit | None:
    try:
        most = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        counters = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        cached = int(counters["active_file"]) + int(counters["inactive_file"])
    except (OSError, ValueError, KeyError):  # there is no file if memory is not counted, and "max" if it is not limited
        return None
    return MemoryLimit(most, max(0, most - used + cached))


def _cores(system: Path, allowed: list[int]) -> tuple[Core, ...]:
    siblings: defaultdict[str, list[int]] = defaultdict(list)
    try:
        for cpu in allowed:
            siblings[(system / f"cpu/cpu{cpu}/topology/thread_siblings_list").read_text()].append(cpu)
    except OSError:  # some containers have no such files
        count = max(1, min(psutil.cpu_count(logical=False) or len(allowed), len(allowed)))
        return tuple(tuple(allowed[number::count]) for number in range(count))
    return tuple(map(tuple, siblings.values()))


def _nodes(system: Path, cores: Iterable[Core]) -> Iterator[Node]:
    for folder in sorted((system / "node").glob("node[0-9]*"), key=lambda folder: int(folder.name[4:])):
        try:
            cpus = cpu_list((folder / "cpulist").read_text())
            total = re.search(r"MemTotal:\s+(\d+) kB", (folder / "meminfo").read_text())
        except (OSError, ValueError):
            return
        mine = tuple(core for core in cores if cpus.issuperset(core))
        if mine and total:
            yield Node(int(folder.name[4:]), mine, int(total[1]) << 10)


def cpu_list(text: str) -> frozenset[int]:
    """Parse a list of CPUs in Linux's format, such as `0-3,8`. Raises ValueError."""
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)
