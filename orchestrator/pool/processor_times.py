"""Measure how much processor time this process, its engines and its programs have taken."""

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class ProcessorSeconds:
    """Seconds of processor time so far, of all cores together.

    Each number only grows as long as the same engines run, so that the difference of two says how many cores were used.
    """

    engines: Mapping[str, float]  # by model, of the engines that run now
    daemon: float
    programs: float  # gates, tools and code, with those that have ended


class ProcessorTimes:
    """The times of this process and of its children. What an ended child has taken is in the sum for all of them.

    An engine that has ended counts as it was when it was last seen.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engines: dict[int, float] = {}
        self._ended_engines = 0.0

    def read(self, engines: Mapping[int, str]) -> ProcessorSeconds:
        """Return the times; `engines` has the model of each process. Takes milliseconds. Any thread may call it."""
        with self._lock:
            own = os.times()
            by_process = {pid: seconds for pid in engines if (seconds := _seconds(pid)) is not None}
            self._ended_engines += sum(seconds for pid, seconds in self._engines.items() if pid not in by_process)
            self._engines = by_process
            by_model: dict[str, float] = {}
            for pid, seconds in by_process.items():
                by_model[engines[pid]] = by_model.get(engines[pid], 0.0) + seconds
            return ProcessorSeconds(by_model, own.user + own.system, self._programs(own, engines))

    def _programs(self, own: os.times_result, engines: Mapping[int, str]) -> float:
        ended = own.children_user + own.children_system - self._ended_engines
        pids = (child.pid for child in psutil.Process().children(recursive=True))
        running = (_seconds(pid) for pid in pids if pid not in engines)
        return max(0.0, ended + sum(seconds for seconds in running if seconds is not None))


def _seconds(pid: int) -> float | None:
    # With those of the children that it has waited for; None if it has ended.
    try:
        return sum(psutil.Process(pid).cpu_times()[:4])
    except psutil.Error:
        return None
