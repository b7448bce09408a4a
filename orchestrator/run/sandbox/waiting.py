"""Find out how long the processes of a job have waited for a core."""

import contextlib
import os
import time
from pathlib import Path

import psutil

_NANOSECONDS = 1e9
_TICKS = os.sysconf("SC_CLK_TCK")
# Which field after the state is the start of a thread, in ticks since boot (proc_pid_stat(5)).
_START = 18


def waited_seconds(ancestor: int) -> float:
    """Return the longest wait for a core of any thread of a process's descendants.

    The kernel counts it for living threads (schedstats, Linux `Documentation/scheduler/sched-stats.rst`); 0.0 if it
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
        computed, waited = map(int, (thread / "schedstat").read_text(encoding="ascii").split()[:2])
        state, *fields = (thread / "stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
        if state != "R":
            return waited / _NANOSECONDS
        # The kernel adds a wait only when it is over: for a thread that could run now, all its time without a core
        # counts.
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[_START]) / _TICKS
        return max(waited, age * _NANOSECONDS - computed) / _NANOSECONDS
    return 0.0
