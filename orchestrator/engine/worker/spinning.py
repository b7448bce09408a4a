"""Choose how long threads that wait for each other spin before they sleep.

Spinning threads start the next part of a step at once. But where another process takes a core, they also take the core
that the thread they wait for could move to, and a step may take hundreds of times as long.
"""

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from orchestrator.engine.llama import SpinSwitch
from orchestrator.engine.worker.contention import SHORT_SECONDS, CpuUse

_STAT: Final = Path("/proc/stat")
_IDLE: Final = slice(3, 5)  # of the numbers for a CPU: idle, and idle while a device is waited for (proc_stat(5))
_TICKS: Final = os.sysconf("SC_CLK_TCK")

# Whether other processes use the cores is measured over at least this many seconds in which steps follow each other,
# in parts of the second length. Between requests, other processes do not disturb us.
MEASURED_SECONDS, PART_SECONDS = 1.0, 0.2
IDLE_SECONDS: Final = 0.1  # after a longer pause between two steps, a new part begins

# Threads may spin for long if at most this many CPUs are missing for each to have one. The daemon and its callers need
# some time for each token, but a process that computes all the time takes more.
MISSING_CPUS: Final = 0.5

# Threads that spin for long use all their time. If they lacked more CPUs than the first number, in steps that together
# took the second number of seconds, other processes had them. Many requests at a time do not keep the daemon busy for
# that long.
LOST_CPUS, LOST_SECONDS = 0.6, 0.5

# Seconds until threads spin for long again. The pause doubles, up to the second value, while that soon ends.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
SOON: Final = 60.0


class SpinTuner:
    """Chooses whether threads spin for `long`. Pure: times are in seconds, `now` on a monotonic clock."""

    def __init__(self) -> None:
        self.long = False
        self._pause = FIRST_PAUSE
        self._since = 0.0
        self._again_at = 0.0
        self._seconds = self._lost = 0.0

    def wants_measurement(self, now: float) -> bool:
        """Return whether `measured` should be called."""
        return not self.long and now >= self._again_at

    def measured(self, free: float, threads: int, now: float) -> None:
        """Record that other processes left us `free` CPUs, on average over the last second or more."""
        if self.wants_measurement(now) and free >= threads - MISSING_CPUS:
            self.long, self._since = True, now
            self._seconds = self._lost = 0.0

    def stepped(self, seconds: float, cpu_seconds: float, threads: int, now: float) -> None:
        """Record a step that used `cpu_seconds`, in which `threads` threads could have computed."""
        if not self.long or seconds <= SHORT_SECONDS:
            return
        self._seconds += seconds
        self._lost += threads * seconds - cpu_seconds
        if self._seconds < LOST_SECONDS:
            return
        if self._lost > LOST_CPUS * self._seconds:
            self.long = False
            self._pause = min(2 * self._pause, LONGEST_PAUSE) if now - self._since < SOON else FIRST_PAUSE
            self._again_at = now + self._pause
        self._seconds = self._lost = 0.0


class CpuTimes(NamedTuple):
    """Seconds of CPU time, summed up over the CPUs of this process."""

    idle: float
    own: float  # of this process


def cpu_times(stat: Path = _STAT) -> CpuTimes | None:
    """Return the times until now, or None if the kernel does not say. `idle` is of the CPUs that we may use."""
    ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    idle = 0
    try:
        for line in stat.read_text(encoding="ascii").splitlines():
            name, *numbers = line.split()
            if name in ours:
                ours.remove(name)
                nothing, device = map(int, numbers[_IDLE])
                idle += nothing + device
    except (OSError, ValueError):
        return None
    return None if ours else CpuTimes(idle / _TICKS, time.process_time())


class Spinning:
    """Lets an engine's threads spin for long while the machine is quiet and the cores are ours."""

    def __init__(
        self,
        switch: SpinSwitch,
        cpu_times: Callable[[], CpuTimes | None] = cpu_times,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._switch = switch
        self._cpu_times = cpu_times
        self._tuner = SpinTuner()
        self._clock = clock
        self._stepped_at = -math.inf
        self._begin_part(clock())
        self._free = self._seconds = 0.0  # CPU time that others left us, and time, in the parts until now

    def after_step(self, use: CpuUse, threads: int, granted: int) -> None:
        """Choose how the threads wait in the next step, after one with `threads` of the `granted` threads."""
        # The other granted threads are missing, too: fewer are faster only next to other processes.
        now = self._clock()
        self._tuner.stepped(use.seconds, use.cpu_seconds, granted, now)
        self._choose(threads, granted, now, now - use.seconds)

    def before_step(self, threads: int, granted: int) -> None:
        """Choose how the threads wait in a step that `after_step` is not called for."""
        now = self._clock()
        self._choose(threads, granted, now, now)

    def _choose(self, threads: int, granted: int, now: float, started_at: float) -> None:
        if not self._switch.works or granted == 1:
            return
        paused = started_at - self._stepped_at > IDLE_SECONDS
        self._stepped_at = now
        if self._switch.long and not self._tuner.long:
            self._free = self._seconds = 0.0
            self._begin_part(now)
        elif paused:
            self._begin_part(now)
        elif self._tuner.wants_measurement(now) and now - self._part_began >= PART_SECONDS:
            self._end_part(granted, now)
        self._switch.set(long=self._tuner.long and threads == granted)

    def _begin_part(self, now: float) -> None:
        self._part_began = now
        self._times = self._cpu_times() if self._switch.works else None

    def _end_part(self, threads: int, now: float) -> None:
        before, began = self._times, self._part_began
        self._begin_part(now)
        if before is None or self._times is None:
            return
        self._free += sum(self._times) - sum(before)
        self._seconds += now - began
        if self._seconds >= MEASURED_SECONDS:
            self._tuner.measured(self._free / self._seconds, threads, now)
            self._free = self._seconds = 0.0
