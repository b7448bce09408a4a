"""Keep the views of runs that were asked for lately, and bring them up to date with what the journal has gained."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Final

from orchestrator.history.report import Report, build_report
from orchestrator.history.view import RunView
from orchestrator.journal import JournalReader

EVENTS_KEPT: Final = 200_000
"""How many events the views that are kept may have taken in together. One of 10,000 events takes about 12 MB."""


class ViewCache:
    """Views of the runs of one journal. Any number of threads may ask; each call may block on the disk.

    A run that was asked for before costs only the events that came since. When the views have taken in more than
    `capacity` events together, those that were asked for longest ago are dropped; they are built anew when needed.
    """

    def __init__(self, journal: JournalReader, capacity: int = EVENTS_KEPT) -> None:
        self._journal = journal
        self._capacity = capacity
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = Lock()

    @contextmanager
    def view(self, run: str) -> Iterator[RunView]:
        """Give the view of a run as of now. It does not change until the block ends, and may change afterwards.

        Raises JournalError (UnknownRun, JournalCorrupt).
        """
        with self._current(run) as kept:
            yield kept.current

    def report(self, run: str) -> Report:
        """Return the report of a run as of now. Raises JournalError (UnknownRun, JournalCorrupt).

        A run that waits is queued, however far it was before a restart.
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
            except BaseException:  # the run was deleted, or never was; or the view has taken in only some of the events
                self._forget(run)
                raise
            self._drop_oldest(run)
            yield kept

    def _forget(self, run: str) -> None:
        with self._lock:
            self._kept.pop(run, None)

    def _drop_oldest(self, asked: str) -> None:
        """Drop the views that were asked for longest ago, but for the one that is `asked` for now, until all fit."""
        with self._lock:
            taken = sum(kept.events for kept in self._kept.values())
            for run in list(self._kept):
                if taken <= self._capacity:
                    break
                if run != asked:
                    taken -= self._kept.pop(run).events


class _Kept:
    """The view of one run, up to event `number` of the journal, and its report, if nothing has come since.

    `events` may be read without the lock: it is only ever a little out of date.
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
        """Take in the events that the journal has gained. Raises JournalError."""
        gained = journal.events(run, self.number)
        if not gained:
            return
        events = [event for _, event in gained]
        if self._view is None:
            self._view = RunView.of(events)
        else:
            self._view.apply(*events)
        self.number, self.events, self.report = gained[-1][0], self._view.events, None
