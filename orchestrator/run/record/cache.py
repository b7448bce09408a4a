"""Cache the views of recently requested runs, with their reports and pictures, and the figures of ended runs."""

import gc
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Final

from orchestrator.run.journal.errors import JournalError
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.journal.store import RunRow
from orchestrator.run.record.comparison import RunFigures
from orchestrator.run.record.picture import Drawing, Sketch, Window, drawing
from orchestrator.run.record.report import Report, build_report
from orchestrator.run.record.view import RunView

EVENTS_KEPT: Final = 200_000  # in all views together; a view of 10,000 events takes about 12 MB
FIGURES_KEPT: Final = 5000  # runs; those that were not listed for longest go first
PICTURE_SECONDS: Final = 0.5  # for which all who look at a run that has not ended get the same picture


class _Collection:
    """Garbage collection, which threads may pause while they make objects that stay.

    A long run has hundreds of thousands of these, and scans of them would take a third of the time.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._pauses = 0

    @contextmanager
    def paused(self) -> Iterator[None]:
        with self._lock:
            self._pauses += 1
            gc.disable()
        try:
            yield
        finally:
            with self._lock:
                self._pauses -= 1
                if not self._pauses:
                    gc.enable()


_COLLECTION: Final = _Collection()


class ViewCache:
    """An LRU cache of the views of one journal's runs. It is thread-safe; each call may block on the disk.

    If the views hold more than `capacity` events together, the least recently used ones are dropped.
    """

    def __init__(self, journal: JournalReader, capacity: int = EVENTS_KEPT) -> None:
        self._journal = journal
        self._capacity = capacity
        self._entries: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = Lock()

    @contextmanager
    def view(self, run: str) -> Iterator[RunView]:
        """Provide the current view of a run, which does not change until the block ends.

        Raises JournalError (UnknownRun, JournalCorrupt).
        """
        with self._current(run) as entry:
            yield entry.current

    def report(self, run: str) -> Report:
        """Return the current report of a run. Raises JournalError (UnknownRun, JournalCorrupt)."""
        # After a restart a run is queued until it is resumed.
        waits = self._journal.run(run).status == "queued"
        with _COLLECTION.paused(), self._current(run) as entry:
            report = entry.whole_report(self._journal)
        return replace(report, status="queued") if waits else report

    def picture(self, run: str, now: float, window: Window | None = None) -> tuple[Report, bytes]:
        """Return the report of a run, and its picture at `now` (seconds since the epoch), as `Drawing.json` has it.

        If nothing has happened since, it is the picture that was drawn for somebody else: that of a run that has ended,
        or one of up to `PICTURE_SECONDS` before. Raises JournalError (UnknownRun, JournalCorrupt).
        """
        waits = self._journal.run(run).status == "queued"
        with _COLLECTION.paused(), self._current(run) as entry:
            report = entry.whole_report(self._journal)
            drawn = entry.drawn
            if drawn is None or not (entry.current.ended or 0.0 <= now - drawn.at < PICTURE_SECONDS):
                shown = drawing(entry.current, report, now - report.accepted_at, entry.sketch)
                drawn = entry.drawn = _Drawn(now, shown)
            encoded = drawn.drawing.json(window)
        return replace(report, status="queued") if waits else report, encoded

    @contextmanager
    def _current(self, run: str) -> "Iterator[_Kept]":
        with self._lock:
            entry = self._entries.setdefault(run, _Kept())
            self._entries.move_to_end(run)
        with entry.lock:
            try:
                entry.catch_up(self._journal, run)
            except BaseException:  # the run is unknown or was deleted, or only some of the events were applied
                self._forget(run)
                raise
            self._drop_oldest(run)
            yield entry

    def _forget(self, run: str) -> None:
        with self._lock:
            self._entries.pop(run, None)

    def _drop_oldest(self, current: str) -> None:
        with self._lock:
            # Read without the entries' locks, so it may be slightly out of date.
            total = sum(entry.events for entry in self._entries.values())
            for run in list(self._entries):
                if total <= self._capacity:
                    break
                if run != current:
                    total -= self._entries.pop(run).events


class KeptFigures:
    """The figures of ended runs, for lists of runs. They do not change, and making them takes a report. Thread-safe."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, RunFigures] = OrderedDict()
        self._lock = Lock()

    def of(self, views: ViewCache, row: RunRow) -> RunFigures | None:
        """Return the figures of a run; None if it has no steps, or cannot be read. Blocks on the disk."""
        with self._lock:
            if row.run in self._kept:
                self._kept.move_to_end(row.run)
                return self._kept[row.run]
        try:
            report = views.report(row.run)
        except JournalError:  # also for a run whose events are damaged: the others are listed all the same
            return None
        if not report.steps:
            return None
        figures = RunFigures.of(report)
        if row.finished is not None:
            with self._lock:
                self._kept[row.run] = figures
                while len(self._kept) > FIGURES_KEPT:
                    self._kept.popitem(last=False)
        return figures


@dataclass(frozen=True, slots=True)
class _Drawn:
    at: float  # seconds since the epoch
    drawing: Drawing


class _Kept:
    def __init__(self) -> None:
        self.lock = Lock()
        self.number = 0  # of the latest event in the view
        self.events = 0
        self.report: Report | None = None  # None until it is built for this view
        self.drawn: _Drawn | None = None  # the latest picture of this view
        self._view: RunView | None = None

    @cached_property
    def sketch(self) -> Sketch:
        return Sketch()

    @property
    def current(self) -> RunView:
        assert self._view is not None, "`catch_up` came first"
        return self._view

    def catch_up(self, journal: JournalReader, run: str) -> None:
        gained = journal.events(run, self.number)
        if not gained:
            return
        events = [event for _, event in gained]
        if self._view is None:
            self._view = RunView.of(events)
        else:
            self._view.apply(*events)
        self.number, self.events = gained[-1][0], self._view.events
        self.report = self.drawn = None

    def whole_report(self, journal: JournalReader) -> Report:
        if self.report is None:
            self.report = build_report(self.current, journal.get)
        return self.report
