"""Keep the figures of runs that have ended, for lists of runs: they do not change, and making them takes a report."""

from collections import OrderedDict
from threading import Lock
from typing import Final

from orchestrator.run.journal.errors import JournalError
from orchestrator.run.journal.store import RunRow
from orchestrator.run.record.cache import ViewCache
from orchestrator.run.record.comparison import RunFigures

MOST: Final = 5000  # runs; those that were not listed for longest go first


class KeptFigures:
    """The figures of ended runs, kept in memory for lists of runs. Thread-safe."""

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
                while len(self._kept) > MOST:
                    self._kept.popitem(last=False)
        return figures
