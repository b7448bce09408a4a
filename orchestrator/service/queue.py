"""Choose which queued run starts next: interactive runs first, without starving batch runs. Pure."""

import itertools
from collections import Counter, deque
from dataclasses import dataclass
from typing import Final, get_args

from orchestrator.task.modes import Priority

PATIENCE: Final = 8  # at least one of this many runs that start while batch runs wait is a batch run


@dataclass(frozen=True, slots=True)
class Submitted:
    run: str  # its id
    new: bool  # accepted now, and not earlier with the same key


@dataclass(frozen=True, slots=True)
class QueueLength:
    """How many runs of a class wait, and how many are executed."""

    waiting: int
    running: int


class RunQueue:
    """The runs that wait, in order of arrival within their priority, and those that are being executed.

    At most `max_running` runs are executed at once. Batch runs leave `reserved` of these places free, but may always
    have one.
    """

    def __init__(self, max_running: int, reserved: int) -> None:
        self.max_running = max_running
        self.reserved = reserved
        self._waiting: dict[Priority, deque[str]] = {name: deque() for name in get_args(Priority)}
        self._removed: set[str] = set()
        self._entries: dict[str, tuple[Priority, int]] = {}
        self._counts: Counter[Priority] = Counter()
        self._numbers = itertools.count()
        self._running: dict[str, Priority] = {}
        self._passed_over = 0

    @property
    def waiting(self) -> int:
        """How many runs wait, of both priorities."""
        return len(self._entries)

    def waiting_as(self, priority: Priority) -> int:
        return self._counts[priority]

    def running_as(self, priority: Priority) -> int:
        return Counter(self._running.values())[priority]

    @property
    def running(self) -> frozenset[str]:
        return frozenset(self._running)

    def push(self, run: str, priority: Priority) -> None:
        self._waiting[priority].append(run)
        self._entries[run] = priority, next(self._numbers)
        self._counts[priority] += 1

    def remove(self, run: str) -> bool:
        """Return whether the run was in the queue."""
        waited = run in self._entries
        if waited:
            self._forget(run)
            self._removed.add(run)
        return waited

    def position(self, run: str) -> int | None:
        """Return how many runs of its priority are ahead of a run, at most, or None if it does not wait."""
        if run not in self._entries:
            return None
        priority, number = self._entries[run]
        first = self._head(self._waiting[priority])
        assert first is not None, "this one waits, at least"
        return number - self._entries[first][1]  # those that were removed meanwhile may still count

    def pop(self) -> str | None:
        """Remove and return the run that starts next; None if none may start now."""
        lanes = {name: lane for name, lane in self._waiting.items() if self._head(lane) and self._admits(name)}
        if not lanes:
            return None
        priority: Priority = "interactive" if "interactive" in lanes else "batch"
        if "batch" in lanes and self._passed_over >= PATIENCE - 1:
            priority = "batch"
        self._passed_over = 0 if priority == "batch" else self._passed_over + bool(self._head(self._waiting["batch"]))
        run = lanes[priority].popleft()
        self._forget(run)
        self._running[run] = priority
        return run

    def end(self, run: str) -> None:
        """Note that a run is no longer executed, so that another one may start."""
        del self._running[run]

    def _forget(self, run: str) -> None:
        priority, _ = self._entries.pop(run)
        self._counts[priority] -= 1

    def _admits(self, priority: Priority) -> bool:
        if len(self._running) >= self.max_running:
            return False
        batch = Counter(self._running.values())["batch"]
        return priority == "interactive" or batch < max(1, self.max_running - self.reserved)

    def _head(self, lane: deque[str]) -> str | None:
        while lane and lane[0] in self._removed:  # removed runs stay in their lane until they come to its front
            self._removed.discard(lane.popleft())
        return lane[0] if lane else None
