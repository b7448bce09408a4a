"""Choose which of the waiting runs begins next: interactive ones first, without starving the others. Pure."""

import itertools
from collections import Counter, deque
from typing import Final, get_args

from orchestrator.events import Priority

PATIENCE: Final = 8
"""Of so many runs that begin while batch runs wait, one at least is a batch run."""


class RunQueue:
    """Runs that wait, in the order they came within their class, and those that run.

    `places` is how many may run at once. Batch runs leave `reserved` of them free, but always have one.
    """

    def __init__(self, places: int, reserved: int) -> None:
        self.places = places
        self.reserved = reserved
        self._waiting: dict[Priority, deque[str]] = {name: deque() for name in get_args(Priority)}
        self._gone: set[str] = set()
        self._known: dict[str, tuple[Priority, int]] = {}
        self._counts: Counter[Priority] = Counter()
        self._numbers = itertools.count()
        self._running: dict[str, Priority] = {}
        self._passed_over = 0

    @property
    def waiting(self) -> int:
        """How many runs wait."""
        return len(self._known)

    def waiting_as(self, priority: Priority) -> int:
        """How many runs of a class wait."""
        return self._counts[priority]

    @property
    def running(self) -> frozenset[str]:
        """The runs that have begun and not ended."""
        return frozenset(self._running)

    def push(self, run: str, priority: Priority) -> None:
        """Let a run wait."""
        self._waiting[priority].append(run)
        self._known[run] = priority, next(self._numbers)
        self._counts[priority] += 1

    def remove(self, run: str) -> bool:
        """Let a run wait no longer, and return whether it did."""
        waited = run in self._known
        if waited:
            self._forget(run)
            self._gone.add(run)
        return waited

    def position(self, run: str) -> int | None:
        """Return how many runs came before it since the one that is next in its class, or None if it does not wait."""
        if run not in self._known:
            return None
        priority, number = self._known[run]
        first = self._head(self._waiting[priority])
        assert first is not None, "this one waits, at least"
        return number - self._known[first][1]

    def pop(self) -> str | None:
        """Return the run that begins now, which has a place from now on; None where nothing may."""
        lanes = {name: lane for name, lane in self._waiting.items() if self._head(lane) and self._admits(name)}
        if not lanes:
            return None
        patient: Priority = "batch"
        chosen: Priority = "interactive" if "interactive" in lanes else "batch"
        if patient in lanes and self._passed_over >= PATIENCE - 1:
            chosen = patient
        self._passed_over = 0 if chosen == patient else self._passed_over + bool(self._head(self._waiting[patient]))
        run = lanes[chosen].popleft()
        self._forget(run)
        self._running[run] = chosen
        return run

    def end(self, run: str) -> None:
        """Take the place of a run back."""
        del self._running[run]

    def _forget(self, run: str) -> None:
        priority, _ = self._known.pop(run)
        self._counts[priority] -= 1

    def _admits(self, priority: Priority) -> bool:
        if len(self._running) >= self.places:
            return False
        batch = Counter(self._running.values())["batch"]
        return priority == "interactive" or batch < max(1, self.places - self.reserved)

    def _head(self, lane: deque[str]) -> str | None:
        """Drop those from the front that wait no longer, and return the first, if any is left."""
        while lane and lane[0] in self._gone:
            self._gone.discard(lane.popleft())
        return lane[0] if lane else None
