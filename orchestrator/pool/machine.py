"""Ask the machine what this process may use of it: physical cores and memory."""

import os
from pathlib import Path
from typing import Final

import psutil

_TOPOLOGY: Final = Path("/sys/devices/system/cpu")
_CGROUP: Final = Path("/sys/fs/cgroup")
_SPARED: Final = 0.1


def physical_cores(topology: Path = _TOPOLOGY) -> int:
    """Return how many physical cores this process may run on; at least 1.

    Two hardware threads of one core count once: both multiply matrices with the same units.
    """
    allowed = os.sched_getaffinity(0)
    try:
        siblings = {(topology / f"cpu{cpu}/topology/thread_siblings_list").read_text() for cpu in allowed}
    except OSError:  # some containers have no such files
        return max(1, min(psutil.cpu_count(logical=False) or len(allowed), len(allowed)))
    return max(1, len(siblings))


def memory_budget(cgroup: Path = _CGROUP) -> int:
    """Return the bytes that models may take: nine tenths of what is free now, in the machine and in the cgroup."""
    free = psutil.virtual_memory().available
    try:
        limit = int((cgroup / "memory.max").read_text())
        free = min(free, limit - int((cgroup / "memory.current").read_text()))
    except (OSError, ValueError):  # no cgroup of our own, or "max"
        pass
    return max(0, int(free * (1 - _SPARED)))
