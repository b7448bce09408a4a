"""Keep the views of runs that were requested lately, and apply the events to them that are new in the journal."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Final

from orchestrator.run.journal import JournalReader
from orchestrator.run.record.report import Report, build_report
from orchestrator.run.record.view import RunView

EVENTS_KEPT: Final = 200_000
"""How many events the cached views may hold together. One of 10,000 events takes about 12 MB."""


class ViewCache:
    """An LRU cache of the views of the runs of one journal. It is thread-safe; each call may block on the disk.

    A view that is cached costs only the events that came since it was last requested. When the views hold more than
    `capacity` events together, the least recently used ones are dropped.
    """

    def __init__(self, journal: JournalReader, capacity: int = EVENTS_KEPT) -> None:
        self._journal = journal
        self._capacity = capacity
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = Lock()

    @contextmanager
    def view(self, run: str) -> Iterator[RunView]:
        """Return a context manager with the current view of a run, which does not change until the block ends.

        Raises JournalError (UnknownRun, JournalCorrupt).
        """
        with self._current(run) as kept:
            yield kept.current

    def report(self, run: str) -> Report:
        """Return the current report of a run. Raises JournalError (UnknownRun, JournalCorrupt).

        A run that waits to be resumed after a restart has the status queued.
        """
        waits = self._journal.run(run).status == "queued"
        with self._current(run) as kept:
            if kept.report is None:
                kept.report = build_report(kept.current, self._journal.get)
            report = kept.report
        return replace(report, status="queued") if waits else report

    @contextmanager
    def _current(self, run: str) -> "Iterator[_Kept]":
        with self._lock:
            kept = self._kept.setdefault(run, _Kept())
            self._kept.move_to_end(run)
        with kept.lock:
            try:
                kept.catch_up(self._journal, run)
            except BaseException:  # the run is unknown or was deleted, or only some of the events were applied
                self._forget(run)
                raise
            self._drop_oldest(run)
            yield kept

    def _forget(self, run: str) -> None:
        with self._lock:
            self._kept.pop(run, None)

    def _drop_oldest(self, asked: str) -> None:
        """Drop the least recently used views, except for that of the run `asked`, until the others fit."""
        with self._lock:
            taken = sum(kept.events for kept in self._kept.values())
            for run in list(self._kept):
                if taken <= self._capacity:
                    break
                if run != asked:
                    taken -= self._kept.pop(run).events


class _Kept:
    """The view of one run up to event `number` of the journal, and its report, if that was built since.

    `events` may be read without the lock, when it may be slightly out of date.
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self.number = 0
        self.events = 0
        self.report: Report | None = None
        self._view: RunView | None = None

    @property
    def current(self) -> RunView:
        assert self._view is not None, "`catch_up` came first"
        return self._view

    def catch_up(self, journal: JournalReader, run: str) -> None:
        """Apply the events that are new in the journal to the view. Raises JournalError."""
        gained = journal.events(run, self.number)
        if not gained:
            return
        events = [event for _, event in gained]
        if self._view is None:
            self._view = RunView.of(events)
        else:
            self._view.apply(*events)
        self.number, self.events, self.report = gained[-1][0], self._view.events, None
