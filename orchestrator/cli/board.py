"""Fold the events of a run, and what is heard of its progress, into the rows that the live view and reports show.

States come from the scheduler's own state machine, fed with the same events; its commands are not carried out here.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from orchestrator.analysis import StepGraph
from orchestrator.events import (
    AttemptCancelled,
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    Event,
    GateResult,
    PlanningStarted,
    RunAccepted,
    RunBegun,
    RunFinished,
    StepExpanded,
    StepGathered,
)
from orchestrator.history.replay import fresh_state
from orchestrator.scheduler import FINAL, RunState, StepView


@dataclass(slots=True)
class Row:
    """What the state machine does not know of a step. Times are in seconds since the epoch, `rate` in tokens/s."""

    model: str = ""
    persona: str | None = None
    started: float | None = None
    finished: float | None = None
    output_tokens: int = 0
    rate: float = 0.0
    problem: str = ""
    gates: tuple[GateResult, ...] = ()


@dataclass(slots=True)
class Board:
    """A run as the user sees it."""

    title: str = ""
    run: str = ""
    mode: str = "as-planned"
    accepted: float | None = None
    finished: float | None = None
    error: str = ""
    begun: bool = False
    rows: dict[str, Row] = field(default_factory=dict)
    _state: RunState | None = None

    @classmethod
    def of(cls, events: Iterable[Event]) -> "Board":
        """Return the board of a run after these events."""
        board = cls()
        for event in events:
            board.apply(event)
        return board

    def apply(self, event: Event) -> None:
        """Take in one event, the first of which is RunAccepted."""
        if isinstance(event, RunAccepted):
            self._accepted(event)
        assert self._state is not None, "a run's first event is RunAccepted"
        self._state.handle(event)
        match event:
            case RunBegun() | PlanningStarted():
                self.begun = True
            case StepExpanded():
                self.row(event.step).started = event.at
            case StepGathered():
                self.row(event.step).finished = event.at
            case AttemptStarted():
                self._started(event)
            case AttemptGenerated():
                self._generated(event)
            case AttemptSucceeded() | AttemptFailed():
                self._ended(event)
            case AttemptCancelled():
                self._stopped(event.step, event.at)
            case RunFinished():
                self.finished, self.error = event.at, event.error or ""

    def progress(self, step: str, output_tokens: int, rate: float) -> None:
        """Take in how far a running attempt is."""
        row = self.row(step)
        row.output_tokens, row.rate = output_tokens, rate

    def row(self, step: str) -> Row:
        """Return what is known of a step beside its state."""
        return self.rows.setdefault(step, Row())

    @property
    def status(self) -> str:
        """Where the run is: queued, planning, running, done, failed or cancelled."""
        if self._state is None:
            return "starting"
        return self._state.status if self.begun or self._state.status != "running" else "queued"

    @property
    def growing(self) -> bool:
        """Whether more steps may come."""
        return self._state is None or self._state.growing

    @property
    def graph(self) -> StepGraph | None:
        """The graph of the steps known so far; None before the run was accepted."""
        return self._state.graph if self._state else None

    def views(self) -> Iterator[StepView]:
        """Yield the steps in topological order, children of a `foreach` step behind their parent."""
        if self._state is None:
            return
        steps = self._state.steps
        for name in self._state.graph.order:
            view = steps[name]
            yield view
            for child in view.children or ():
                yield steps[child]

    def _accepted(self, event: RunAccepted) -> None:
        self.run, self.mode, self.accepted = event.run, event.mode, event.at
        self.title = event.request or (event.task.objective if event.task else "")
        self._state = fresh_state(event)

    def _started(self, event: AttemptStarted) -> None:
        self.begun = True
        row = self.row(event.step)
        row.model, row.persona = event.model, event.persona
        row.output_tokens, row.rate, row.finished = 0, 0.0, None
        if row.started is None:
            row.started = event.at

    def _generated(self, event: AttemptGenerated) -> None:
        row, usage = self.row(event.step), event.usage
        row.output_tokens = usage.output_tokens
        if usage.decode_seconds > 0:
            row.rate = usage.output_tokens / usage.decode_seconds

    def _ended(self, event: AttemptSucceeded | AttemptFailed) -> None:
        row = self.row(event.step)
        row.gates = event.gates
        self._stopped(event.step, event.at)
        row.problem = f"{event.failure.kind}: {event.failure.message}" if isinstance(event, AttemptFailed) else ""

    def _stopped(self, step: str, at: float) -> None:
        """Note the end of an attempt. The last child of a step that is not gathered any more ends that too."""
        assert self._state is not None, "a run's first event is RunAccepted"
        self.row(step).finished = at
        parent = self._state.steps[step].parent
        if parent and self._state.steps.state_of(parent) in FINAL:
            self.row(parent).finished = at
