"""Fold the events of a run into what the report tells: when each attempt began and ended, and what came of it.

Times are in seconds since the run was accepted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.events import (
    AttemptCancelled,
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    CallOutcome,
    Event,
    GateResult,
    PlanFailed,
    PlanFinished,
    PlanningStarted,
    PlanOrigin,
    ReplanFinished,
    ReplanStarted,
    RunBegun,
    RunFinished,
    RunStatus,
    StepExpanded,
    StepGathered,
    StepsPlanned,
    ToolCalled,
    Usage,
)
from orchestrator.history.replay import accepted_in


@dataclass(frozen=True, slots=True)
class CallRow:
    """One call of a tool, or of models from a step's code, as in ToolCalled."""

    tool: str
    arguments: str
    outcome: CallOutcome
    message: str
    seconds: float


@dataclass(slots=True)
class AttemptRow:
    """One try of a step. `outcome` is running, checking, done, cancelled, interrupted or the kind of failure."""

    number: int
    role: str
    persona: str | None
    model: str
    started: float
    reason: str
    finished: float | None = None
    outcome: str = "running"
    message: str = ""
    usage: Usage = field(default_factory=Usage)
    gates: tuple[GateResult, ...] = ()
    calls: tuple[CallRow, ...] = ()


@dataclass(slots=True)
class ReplanRow:
    """One time that the plan was to go on after a step, which added `steps`.

    `outcome` is waiting (for the step), planning, planned, repaired, stopped (what there is of the plan stands),
    refused (by `max_replans`) or cancelled. `pause_seconds` passed until the first new step was there; or, if there was
    none, until that was clear.
    """

    after: str
    outcome: str
    reason: str = ""
    model: str = ""
    started: float | None = None
    finished: float | None = None
    pause_seconds: float | None = None
    steps: tuple[str, ...] = ()
    usage: Usage = field(default_factory=Usage)


class Story:
    """What a run's events say, of which the first is RunAccepted."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.accepted = accepted_in(events)
        self.status: RunStatus = "queued"
        self.error: str | None = None
        self.origin: PlanOrigin | None = None
        self.plan_reason = ""
        self.plan_usage = Usage()
        self.plannings = 0
        self.replans: list[ReplanRow] = []
        self.attempts: dict[str, list[AttemptRow]] = {}
        self.outputs: dict[str, Mapping[str, str]] = {}
        self.wall_seconds = events[-1].at - self.accepted.at
        self._planning: tuple[float, float] = (0.0, 0.0)
        self._fans: dict[str, tuple[float | None, float | None]] = {}
        for event in events:
            self._take_in(event, event.at - self.accepted.at)

    @property
    def planning_seconds(self) -> float:
        """Return how long the frontdoor took; steps may have begun meanwhile."""
        begun, done = self._planning
        return max(0.0, done - begun)

    def times(self, step: str) -> tuple[float | None, float | None]:
        """Return when a step began and when it ended, as far as it did."""
        attempts = self.attempts.get(step)
        if not attempts:
            return self._fans.get(step, (None, None))
        return attempts[0].started, attempts[-1].finished

    def _take_in(self, event: Event, at: float) -> None:
        match event:
            case PlanningStarted():
                self.status, self.plannings = "planning", self.plannings + 1
                self._planning = (at, at)
            case StepsPlanned(steps=steps):
                self._take_in_new(tuple(step.id for step in steps), at)
            case PlanFinished(origin=origin, reason=reason, usage=usage):
                self.origin, self.plan_reason, self.plan_usage = origin, reason, usage
                self.status = "running" if self.status == "planning" else self.status
                self._planning = (self._planning[0], at)
                self.plannings += origin in ("repaired", "fallback")
                self._await(event.goes_on_after)
            case PlanFailed(failure=failure):
                self.error = failure.message
            case ReplanStarted() | ReplanFinished():
                self._take_in_replan(event, at)
            case StepExpanded(step=step):
                self._fans[step] = (at, None)
            case StepGathered(step=step, outputs=outputs):
                self._fans[step] = (self._fans.get(step, (at, None))[0], at)
                self.outputs[step] = outputs
            case RunFinished(status=status, error=error):
                self.status, self.error = status, error or self._cut_short()
                if self.replans and self.replans[-1].outcome in ("waiting", "planning"):
                    self.replans[-1].outcome = "cancelled"
            case _:
                self._take_in_attempt(event, at)

    def _take_in_replan(self, event: ReplanStarted | ReplanFinished, at: float) -> None:
        row = self.replans[-1]
        if isinstance(event, ReplanStarted):
            row.outcome, row.model = "planning", event.model
            row.started = at if row.started is None else row.started
            return
        row.outcome, row.reason, row.usage, row.finished = event.outcome, event.reason, event.usage, at
        self.plannings += event.asked
        self._pause(row, at)
        self._await(event.goes_on_after)

    def _take_in_new(self, steps: tuple[str, ...], at: float) -> None:
        """Note which steps the rest of a plan has; those of its first part are noted nowhere."""
        if self.replans:
            self.replans[-1].steps += steps
            self._pause(self.replans[-1], at)

    def _await(self, step: str | None) -> None:
        """Note that the plan is to go on after a step, if it is."""
        if step is None:
            return
        most = self.accepted.max_replans
        if len(self.replans) < most:
            self.replans.append(ReplanRow(step, "waiting"))
        else:
            self.replans.append(ReplanRow(step, "refused", f"max_replans is {most}"))

    def _cut_short(self) -> str | None:
        """Return where the plan was to go on and did not, or not as it was to, and why. None: it is whole."""
        short = (row for row in self.replans if row.outcome in ("stopped", "refused"))
        return "; ".join(f"the plan was cut short after {row.after}: {row.reason}" for row in short) or None

    @staticmethod
    def _pause(row: ReplanRow, at: float) -> None:
        if row.pause_seconds is None and row.started is not None:
            row.pause_seconds = at - row.started

    def _take_in_attempt(self, event: Event, at: float) -> None:
        match event:
            case RunBegun() if self.status == "queued":
                self.status = "running"
            case AttemptStarted(step=step):
                self.status = "running"
                self._interrupt(step)
                begun = AttemptRow(event.number, event.role, event.persona, event.model, at, event.reason)
                self.attempts.setdefault(step, []).append(begun)
            case ToolCalled(step=step) if row := self._attempt(step, event.number):
                call = CallRow(event.tool, event.arguments, event.outcome, event.message, event.seconds)
                row.calls = (*row.calls, call)
            case AttemptGenerated(step=step, usage=usage) if row := self._attempt(step, event.number):
                row.outcome, row.usage = "checking", usage
            case AttemptSucceeded(step=step, outputs=outputs):
                self.outputs[step] = outputs
                self._end(step, event.number, at, "done", gates=event.gates)
            case AttemptFailed(step=step, number=0):
                self._fans[step] = (self._fans.get(step, (at, None))[0], at)
            case AttemptFailed(step=step, failure=failure):
                self._end(step, event.number, at, failure.kind, failure.message, event.gates)
            case AttemptCancelled(step=step):
                self._end(step, event.number, at, "cancelled")

    def _attempt(self, step: str, number: int) -> AttemptRow | None:
        return next((row for row in self.attempts.get(step, ()) if row.number == number), None)

    def _end(
        self, step: str, number: int, at: float, outcome: str, message: str = "", gates: tuple[GateResult, ...] = ()
    ) -> None:
        if row := self._attempt(step, number):
            row.finished, row.outcome, row.message, row.gates = at, outcome, message, gates

    def _interrupt(self, step: str) -> None:
        """A new attempt begins: one that is still open ended unseen, with the process that ran it."""
        for row in self.attempts.get(step, ()):
            if row.finished is None:
                row.outcome = "interrupted"
