"""Ask the machine what this process may use of it: cores, NUMA nodes and memory."""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import psutil

from orchestrator.pool.topology import Core, Node, Topology

_SYSTEM: Final = Path("/sys/devices/system")
_CGROUP: Final = Path("/sys/fs/cgroup")
_SPARED: Final = 0.1


def read_topology(system: Path = _SYSTEM) -> Topology:
    """Return the nodes, cores and memory that this process may use.

    What Linux does not say is filled in, so that there is always an answer: without the cores' siblings as many cores
    as psutil counts, without nodes one node with all cores and all memory.
    """
    cores = _cores(system, sorted(os.sched_getaffinity(0)))
    nodes = tuple(_nodes(system, cores))
    if len(nodes) < 2 or sum(len(node.cores) for node in nodes) != len(cores):
        nodes = (Node(nodes[0].id if nodes else 0, cores, psutil.virtual_memory().total),)
    return Topology(nodes)


def memory_budget(cgroup: Path = _CGROUP) -> int:
    """Return the bytes that models may take: nine tenths of what is free now, in the machine and in the cgroup."""
    free = psutil.virtual_memory().available
    try:
        limit = int((cgroup / "memory.max").read_text())
        free = min(free, limit - int((cgroup / "memory.current").read_text()))
    except (OSError, ValueError):  # no cgroup of our own, or "max"
        pass
    return max(0, int(free * (1 - _SPARED)))


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
    """Yield the nodes that have one of `cores`; nothing where Linux does not describe them."""
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
    """Read Linux's way to list CPUs, as in `0-3,8`. Raises ValueError."""
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)
