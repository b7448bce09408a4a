"""Watch a process that has work to do, and find out when it makes no progress any more."""

import contextlib
import os
import time
from collections.abc import Callable
from typing import Final, Protocol

SAMPLES: Final = 9
"""A process hangs after this many consecutive samples without a sign of life."""


class Timer(Protocol):
    """What `call_later` returns: a call that will be made later, unless it is cancelled."""

    def cancel(self) -> None:
        """Cancel the call."""


class Activity:
    """Finds out from outside whether a process works, by its CPU time and the states of its threads.

    The CPU time is that of all threads together, in nanoseconds, so even a process that gets a core for only a few
    microseconds a second is seen to work. One that gets no core at all has a thread that is runnable. A process that
    is stopped, deadlocked or waits for a device has neither: its threads sleep and use no CPU time.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._clock = ~pid << 3 | 2  # the process's CPU clock, see clock_getcpuclockid(3): no file in /proc is as exact
        self._cpu: int | None = None

    def worked(self) -> bool:
        """Return whether the process has used CPU time since the last call, or has a thread that could run now.

        The first call has nothing to compare with and returns True.
        """
        before, self._cpu = self._cpu, self._cpu_time()
        return self._cpu != before or "R" in self.states()

    def states(self) -> set[str]:
        """Return the states of its threads, as letters of proc_pid_stat(5); an empty set when the process is gone.

        "R": runs or waits for a core; "S": sleeps; "D": waits for a device; "T": stopped; "t": stopped by a debugger.
        """
        folder = f"/proc/{self._pid}/task"
        found = set()
        with contextlib.suppress(OSError):
            for thread in os.listdir(folder):
                with contextlib.suppress(OSError), open(f"{folder}/{thread}/stat", encoding="utf-8") as file:
                    found.add(file.read().rpartition(") ")[2][:1])  # the name before it may hold anything
        return found - {""}

    def _cpu_time(self) -> int:
        """Return the CPU time in nanoseconds, or -1 when the process is gone."""
        try:
            return time.clock_gettime_ns(self._clock)
        except OSError:
            return -1


class Watchdog:
    """Calls `on_hung` when a process has given no sign of life for `limit` seconds while `has_work` returned True.

    A message from the process is a sign of life (`signal`), and so is work: `worked` returns whether there was any
    since it was called last. It is called at intervals of a tenth of the limit. Consecutive samples without a sign are
    counted instead of the time between them, so that no process is taken for hung because this one was stopped or got
    no core for a while. A message that has not been read yet is not missed: writing it has taken CPU time. `on_hung`
    is called 0.9 to 1.0 times the limit after the last sign, or later when this process is late itself.

    While the process has work there is one timer, made by `call_later` (of the event loop); otherwise there is none.
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
        """Start counting anew, since a message has arrived, or since the process had no work until now."""
        self._signalled = True

    def start(self) -> None:
        """Take samples from now on if the process has work. Does nothing if samples are taken already."""
        if self._timer is None and self._has_work():
            self._timer = self._call_later(self.limit / (SAMPLES + 1), self._sample)

    def set_limit(self, seconds: float) -> None:
        """Set the limit and start counting anew. Call it only when a message has arrived."""
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
        worked = self._worked()  # called in any case: the next sample is compared with this one
        self._idle = 0 if worked or self._signalled else self._idle + 1
        self._signalled = False
        if self._idle >= SAMPLES and self._has_work():
            self._on_hung()
        else:
            self.start()
