"""Find out whether the processes of a job wait for a core, or for something of their own."""

import contextlib
from pathlib import Path

import psutil

_NANOSECONDS = 1e9


def waited_seconds(ancestor: int) -> float:
    """Return how long a thread of the descendants of a process has waited for a core: the thread that waited longest.

    The kernel counts it for each living thread (schedstats, Linux `Documentation/scheduler/sched-stats.rst`); 0.0 if it
    does not, or if the process has ended.
    """
    try:
        descendants = psutil.Process(ancestor).children(recursive=True)
    except psutil.NoSuchProcess:
        return 0.0
    return max((_waited(thread) for process in descendants for thread in _threads(process.pid)), default=0.0)


def _threads(pid: int) -> list[Path]:
    try:
        return list(Path("/proc", str(pid), "task").iterdir())
    except OSError:
        return []  # it has ended meanwhile


def _waited(thread: Path) -> float:
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int((thread / "schedstat").read_text(encoding="ascii").split()[1]) / _NANOSECONDS
    return 0.0
