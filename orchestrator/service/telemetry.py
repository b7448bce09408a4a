"""Export runs that have ended to an OpenTelemetry collector, if one is configured.

A thread sends one run after the other. If the collector is down, it tries again later, and nothing else waits: the
queue has ids only, since the journal has the rest, and if it is full the oldest run is not exported.
"""

import re
import threading
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Final

import structlog

from orchestrator.errors import InputError, Problem
from orchestrator.run.journal.errors import JournalError
from orchestrator.run.journal.reader import JournalReader
from orchestrator.service.configuration import TelemetrySettings
from orchestrator.service.quota import Totals

if TYPE_CHECKING:
    from orchestrator.service.otlp import Collector

COLLECTOR: Final = "orchestrator.service.otlp:Collector"  # imported by the first export
PACKAGES: Final = ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http")
MAX_QUEUED: Final = 10_000  # runs
CLOSING_SECONDS: Final = 5.0  # for the runs in the queue, when the state folder is closed
FIRST_PAUSE: Final = 1.0  # seconds until a run is sent again; doubled each time
LONGEST_PAUSE: Final = 60.0
# The header `traceparent` (https://www.w3.org/TR/trace-context): VERSION-TRACE-PARENT-FLAGS; later versions may have
# more after it.
_TRACEPARENT: Final = re.compile(
    r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)
_SAMPLED: Final = 1
_MOST_CHARACTERS: Final = 512

log = structlog.get_logger(__name__)


class CollectorUnavailable(Exception):
    """The collector cannot be reached, or cannot take anything now. The message says why."""


def check_packages() -> None:
    """Raise InputError if the packages that an endpoint needs are not installed."""
    try:
        for package in PACKAGES:
            version(package)
    except PackageNotFoundError as error:
        accepted = "pip install 'orchestrator[otel]', or no endpoint"
        raise InputError(Problem("endpoint of [telemetry]", "needs the extra `otel`", accepted)) from error


class RunExporter:
    """Exports the runs of one journal, in a thread of its own, from its making until `close`.

    `remote_models` returns the models that other servers run. Outcomes are counted in `totals`.
    """

    def __init__(
        self,
        settings: TelemetrySettings,
        journal: JournalReader,
        remote_models: Callable[[], Collection[str]],
        totals: Totals,
    ) -> None:
        self._settings = settings
        self._journal = journal
        self._remote_models = remote_models
        self._totals = totals
        self._queue: deque[str] = deque()
        self._changed = threading.Condition()
        self._sending = False
        self._unavailable = False
        self._closed = False
        self._collector: Collector | None = None
        # A daemon thread, so that a request to a collector that hangs does not keep the process from its end.
        threading.Thread(target=self._export_all, name="telemetry", daemon=True).start()

    @property
    def waiting(self) -> int:
        """How many runs are still to be exported."""
        with self._changed:
            return len(self._queue) + self._sending

    def put(self, run: str) -> None:
        """Have a run exported that has ended. Runs that have not are ignored."""
        with self._changed:
            if len(self._queue) >= MAX_QUEUED:
                self._queue.popleft()
                self._totals.exports["dropped"] += 1
            self._queue.append(run)
            self._changed.notify_all()

    def close(self) -> None:
        """Export what is in the queue, if the collector answers, and end. Takes at most CLOSING_SECONDS."""
        with self._changed:
            self._changed.wait_for(lambda: not self.waiting or self._unavailable, CLOSING_SECONDS)
            if self.waiting:
                log.warning("runs are not exported: the collector has not taken them", runs=self.waiting)
                self._totals.exports["dropped"] += self.waiting
            self._closed = True
            self._changed.notify_all()
        if self._collector is not None:
            self._collector.close()

    def _export_all(self) -> None:
        pause = FIRST_PAUSE
        while (run := self._next()) is not None:
            try:
                outcome = self._export(run)
            except CollectorUnavailable as error:
                self._again(run, str(error), pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            pause = FIRST_PAUSE
            self._count(outcome)

    def _next(self) -> str | None:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            if self._closed:
                return None
            self._sending = True
            return self._queue.popleft()

    def _export(self, run: str) -> str:
        try:
            if self._collector is None:
                self._collector = resolve_name(COLLECTOR)(self._settings, self._journal, self._remote_models)
            outcome = self._collector.export(run)
        except CollectorUnavailable:
            raise
        except JournalError as error:  # such as for a run that was deleted meanwhile
            log.warning("a run is not exported", run=run, error=str(error))
            return "unreadable"
        except Exception:
            if not self._closed:  # else the journal has been closed meanwhile
                log.exception("a run is not exported", run=run)
            return "unreadable"
        if outcome == "refused":
            log.warning("the collector has refused a run", run=run, endpoint=self._settings.endpoint)
        return outcome

    def _again(self, run: str, reason: str, pause: float) -> None:
        with self._changed:
            if not self._unavailable and not self._closed:
                endpoint = self._settings.endpoint
                log.warning("runs wait to be exported: the collector is down", endpoint=endpoint, reason=reason)
            self._unavailable, self._sending = True, False
            if len(self._queue) < MAX_QUEUED:
                self._queue.appendleft(run)
            else:
                self._totals.exports["dropped"] += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed, pause)

    def _count(self, outcome: str) -> None:
        with self._changed:
            self._sending = False
            if outcome and not self._closed:  # `close` has counted it
                self._totals.exports[outcome] += 1
            if self._unavailable and outcome in ("exported", "refused"):
                self._unavailable = False
                log.info("runs are exported again", endpoint=self._settings.endpoint, waiting=self.waiting)
            self._changed.notify_all()


@dataclass(frozen=True, slots=True)
class ParentSpan:
    """The span in which a caller submits a run."""

    trace: int  # id of 128 bits
    span: int  # id of 64 bits
    is_sampled: bool  # whether the caller records its trace


def parent_span(header: str) -> ParentSpan | None:
    """Return the span that a header names; None if it is invalid."""
    match = _TRACEPARENT.fullmatch(header) if len(header) <= _MOST_CHARACTERS else None
    if match is None or (match[1] == "00" and match[5]):
        return None
    return ParentSpan(int(match[2], 16), int(match[3], 16), bool(int(match[4], 16) & _SAMPLED))
