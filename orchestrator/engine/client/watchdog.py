"""Watch a process that owes an answer, and find out when it has stopped working."""

import contextlib
import os
import time
from collections.abc import Callable
from typing import Final, Protocol

SAMPLES: Final = 9
"""A process is hung after so many consecutive samples without a sign of life."""


class Timer(Protocol):
    """What `call_later` returns: a call that is due later and can be cancelled."""

    def cancel(self) -> None:
        """Do not make the call."""


class Activity:
    """Find out from outside whether a process works: by its CPU time and the states of its threads.

    The CPU time is that of all threads together, in nanoseconds, so that even a process that gets a core for a few
    microseconds a second is seen to work. One that gets none at all has a thread that is runnable. A process that is
    stopped, deadlocked or waits for a device has neither: sleeping threads use no CPU time.
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
        """Return the states of its threads in the letters of proc_pid_stat(5); none when the process is gone.

        "R" runs or waits for a core, "S" sleeps, "D" waits for a device, "T" is stopped, "t" is stopped by a debugger.
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
    """Calls `hung` when a process has given no sign of life for `limit` seconds while `owes` returned True.

    A message from the process is a sign of life (`heard`), and so is work: `worked` returns whether there was any since
    it was called last. It is called at intervals of a tenth of the limit. Consecutive samples without a sign are
    counted, and not the time between them, so that nobody is taken for hung when this process itself was stopped or got
    no core for a while. A message that has not been read yet is not missed: writing it has taken CPU time. `hung` is
    called 0.9 to 1.0 times the limit after the last sign, later when this process is late itself.

    While something is owed there is one timer, made by `call_later` (of the event loop); otherwise there is none.
    """

    def __init__(
        self,
        limit: float,
        *,
        owes: Callable[[], bool],
        worked: Callable[[], bool],
        hung: Callable[[], None],
        call_later: Callable[[float, Callable[[], None]], Timer],
    ) -> None:
        self.limit = limit
        self._owes = owes
        self._worked = worked
        self._hung = hung
        self._call_later = call_later
        self._timer: Timer | None = None
        self._heard = True
        self._idle = 0

    def heard(self) -> None:
        """Begin to count anew: there was a message, or nothing was owed until now."""
        self._heard = True

    def watch(self) -> None:
        """Take samples from now on if something is owed. Does nothing when that is done already."""
        if self._timer is None and self._owes():
            self._timer = self._call_later(self.limit / (SAMPLES + 1), self._sample)

    def allow(self, seconds: float) -> None:
        """Set the limit. The caller has just been told something by the process."""
        if seconds != self.limit:
            self.rest()
            self.limit = seconds
            self.heard()
            self.watch()

    def rest(self) -> None:
        """Take no samples until `watch` is called."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sample(self) -> None:
        self._timer = None
        worked = self._worked()  # asked in any case: the next sample is compared with this one
        self._idle = 0 if worked or self._heard else self._idle + 1
        self._heard = False
        if self._idle >= SAMPLES and self._owes():
            self._hung()
        else:
            self.watch()
