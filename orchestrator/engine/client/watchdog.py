"""Watch a process that has work to do, and detect when it makes no progress."""

import contextlib
import os
import time
from collections.abc import Callable
from typing import Final, Protocol

SAMPLES: Final = 9  # consecutive samples without a sign of life until a process counts as hung


class Timer(Protocol):
    """A call that `call_later` has scheduled."""

    def cancel(self) -> None:
        """Cancel the call."""


class Activity:
    """Detects from outside whether a process works, by its CPU time and the states of its threads."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._clock = ~pid << 3 | 2  # the process's CPU clock, see clock_getcpuclockid(3): no file in /proc is as exact
        self._cpu: int | None = None

    def worked(self) -> bool:
        """Return whether the process has used CPU time since the last call, or has a runnable thread.

        The first call returns True.
        """
        # The CPU time of all threads is in nanoseconds, so a few microseconds a second suffice. A process without a
        # core has a runnable thread. Threads that are stopped, deadlocked or wait for a device sleep and use no CPU
        # time.
        before, self._cpu = self._cpu, self._cpu_time()
        return self._cpu != before or "R" in self.states()

    def states(self) -> set[str]:
        """Return the states of its threads, as letters of proc_pid_stat(5); empty if the process is gone."""
        # R: runs or waits for a core; S: sleeps; D: waits for a device; T: stopped; t: stopped by a debugger
        folder = f"/proc/{self._pid}/task"
        states = set()
        with contextlib.suppress(OSError):
            for thread in os.listdir(folder):
                with contextlib.suppress(OSError), open(f"{folder}/{thread}/stat", encoding="utf-8") as file:
                    states.add(file.read().rpartition(") ")[2][:1])  # the name before it may hold anything
        return states - {""}

    def _cpu_time(self) -> int:
        try:
            return time.clock_gettime_ns(self._clock)
        except OSError:
            return -1  # the process is gone


class Watchdog:
    """Calls `on_hung` when a process gives no sign of life for `limit` seconds while `has_work` returns True.

    Signs of life are messages (`signal`) and work (`worked`: any since its last call). `on_hung` is called 0.9 to 1.0
    times the limit after the last sign, later if this process is late. While the process has work there is one timer,
    made by `call_later` (of the event loop).
    """

    def __init__(
        self,
        limit: float,
        *,
        has_work: Callable[[], bool],
        worked: Callable[[], bool],
        on_hung: Callable[[], None],
        call_later: Callable[[float, Callable[[], None]], Timer],
    ) -> None:
        self.limit = limit
        self._has_work = has_work
        self._worked = worked
        self._on_hung = on_hung
        self._call_later = call_later
        self._timer: Timer | None = None
        self._signalled = True
        self._idle = 0

    def signal(self) -> None:
        """Count from 0 again: a message has arrived, or the process had no work until now."""
        self._signalled = True

    def start(self) -> None:
        """Take samples while the process has work. Does nothing if they are already taken."""
        if self._timer is None and self._has_work():
            self._timer = self._call_later(self.limit / (SAMPLES + 1), self._sample)

    def set_limit(self, seconds: float) -> None:
        """Set the limit and count from 0 again. Call it only when a message has arrived."""
        if seconds != self.limit:
            self.stop()
            self.limit = seconds
            self.signal()
            self.start()

    def stop(self) -> None:
        """Take no samples until `start` is called."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sample(self) -> None:
        self._timer = None
        # Samples are counted instead of time, since this process may have been stopped or without a core. An unread
        # message counts as work, since writing it took CPU time.
        worked = self._worked()  # called in any case: the next sample is compared with this one
        self._idle = 0 if worked or self._signalled else self._idle + 1
        self._signalled = False
        if self._idle >= SAMPLES and self._has_work():
            self._on_hung()
        else:
            self.start()
