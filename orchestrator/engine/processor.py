"""Identify this machine's processor, and count the CPUs that this process may use.

A container may see all CPUs but have a quota of their time. More threads than that would all be stopped for a part of
every period.
"""

import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

_GROUPS: Final = Path("/sys/fs/cgroup")
_OWN_GROUPS: Final = Path("/proc/self/cgroup")
# The fields of /proc/cpuinfo that distinguish processors, on x86 and ARM.
_KIND = {"cpu family": "family", "model": "model", "CPU implementer": "implementer", "CPU part": "part"}


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the name and kind of the first processor, or at least its architecture. Raises nothing."""
    fields: dict[str, str] = {}
    with suppress(OSError), cpuinfo.open(encoding="utf-8", errors="replace") as lines:
        for name, _, value in (line.partition(":") for line in lines):
            fields.setdefault(name.strip(), value.strip())
    # The name is not enough: several generations of virtual machines are called "AMD EPYC".
    name = fields.get("model name") or platform.processor() or platform.machine()
    kind = ", ".join(f"{words} {fields[field]}" for field, words in _KIND.items() if fields.get(field))
    return f"{name} ({kind})" if kind else name


def usable_cpus() -> int:
    """Return how many logical CPUs this process may use, by its affinity and the quota of its control groups."""
    allowed, quota = len(os.sched_getaffinity(0)), cpu_quota()
    return allowed if quota is None else max(1, min(allowed, int(quota)))


def usable_cores() -> int:
    """Return the best number of threads: one for each physical core, at most `usable_cpus`."""
    usable = usable_cpus()
    return max(1, min(psutil.cpu_count(logical=False) or usable, usable))


def cpu_quota(groups: Path = _GROUPS, own: Path = _OWN_GROUPS) -> float | None:
    """Return the CPU quota of this process's control groups (version 1 or 2), in CPUs.

    None without a limit. Raises nothing.
    """
    try:
        lines = own.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    folders = (folder for line in lines for folder in _groups_of(line, groups))
    return min(filter(None, map(_quota_of, folders)), default=None)


def _groups_of(line: str, groups: Path) -> Iterator[Path]:
    _, _, rest = line.partition(":")
    controllers, _, path = rest.partition(":")
    if controllers and "cpu" not in controllers.split(","):
        return
    # The group and those around it. A container may see its own group as the outermost one, whatever the line says.
    for root in dict.fromkeys((groups / controllers, groups / "cpu") if controllers else (groups,)):
        inner = root / path.lstrip("/")
        yield from (folder for folder in (inner, *inner.parents) if folder.is_relative_to(root))


def _quota_of(group: Path) -> float | None:
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):  # version 2, version 1
        with suppress(OSError, ValueError, ZeroDivisionError):
            quota, period = " ".join((group / name).read_text(encoding="ascii") for name in names).split()
            if float(quota) > 0:  # "max" and -1 stand for no limit
                return float(quota) / float(period)
    return None
