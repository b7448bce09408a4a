"""Fold the events of one run into the view that the report, the API and the CLI show.

Times are in seconds since the run was accepted.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import structs

from orchestrator.errors import InputError, Problem
from orchestrator.run.record.steps import PlanRecord, RunStep
from orchestrator.task.analysis import StepGraph
from orchestrator.task.events import (
    AnswerChecked,
    AttemptCancelled,
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    CallOutcome,
    Event,
    GateResult,
    ModelAwaited,
    PlanFailed,
    PlanFinished,
    PlanningStarted,
    PlanOrigin,
    PlanReplaced,
    PromptDigests,
    RatingGiven,
    ReplanFinished,
    ReplanStarted,
    RetryRequested,
    RunAccepted,
    RunBegun,
    RunFinished,
    StepExpanded,
    StepGathered,
    StepPrioritised,
    StepReused,
    StepsPlanned,
    ToolCalled,
    Usage,
)
from orchestrator.task.modes import RunStatus
from orchestrator.task.states import FINAL
from orchestrator.task.taskir.models import compose_name

# How many of a run's steps the message about an unknown step lists.
STEPS_NAMED: Final = 10
NO_USAGE: Final = Usage()
NO_PROMPTS: Final = PromptDigests()


@dataclass(frozen=True, slots=True)
class CallRow:
    """One call of a tool, or of models from a step's code, as in ToolCalled."""

    tool: str
    arguments: str
    outcome: CallOutcome
    message: str
    seconds: float
    work_seconds: float | None = None
    awaited_seconds: float = 0.0
    ended: float = 0.0  # when it ended


@dataclass(frozen=True, slots=True)
class WaitRow:
    """One wait for a model that had failed too often, as in ModelAwaited."""

    since: float  # when it started
    model: str
    reason: str
    seconds: float | None


class AttemptRow(msgspec.Struct, frozen=True, gc=False):
    """One attempt at a step. `outcome` is running, checking, done, cancelled, interrupted or the kind of failure.

    It is a struct, which is made and changed several times as fast as a dataclass: a run may have 10,000.
    """

    number: int
    role: str
    persona: str | None
    model: str
    started: float
    reason: str
    finished: float | None = None
    outcome: str = "running"
    message: str = ""
    usage: Usage = NO_USAGE
    gates: tuple[GateResult, ...] = ()
    calls: tuple[CallRow, ...] = ()
    propensity: float = 1.0
    prompts: PromptDigests = NO_PROMPTS
    reasoning: str = ""  # digest of the models' reasoning
    waits: tuple[WaitRow, ...] = ()
    answer: str = ""  # digest of the answer that failed
    generated: float | None = None  # when the models were done; None if they are not, or were not used
    made: Mapping[str, str] | None = None  # digests of the outputs by name, before code or a repair has replaced them


@dataclass(frozen=True, slots=True)
class ReplanRow:
    """One continuation of the plan after the step `after`, which added `steps`."""

    after: str
    # One of waiting (for the step), planning, planned, repaired, stopped (the plan stays as it is), refused (by
    # `max_replans`) and cancelled.
    outcome: str
    reason: str = ""
    model: str = ""
    started: float | None = None
    finished: float | None = None
    # From the start of planning until the first new step, or its absence, was known.
    pause_seconds: float | None = None
    steps: tuple[str, ...] = ()
    usage: Usage = NO_USAGE


@dataclass(frozen=True, slots=True)
class RatingRow:
    """A rating of the run or of a step, as in RatingGiven."""

    at: float
    score: float
    by: str
    note: str


class RunView:
    """A fold of a run's events so far: steps, attempts, outputs, how its plan grew, and ratings.

    It depends on the events alone, not on how they were split among calls of `apply`.
    """

    def __init__(self, accepted: RunAccepted) -> None:
        self.accepted = accepted
        self.state = PlanRecord(accepted)
        self.events = 1  # how many were applied, RunAccepted included
        self.status: RunStatus = "queued"
        self.error: str | None = None
        self.missing: tuple[str, ...] = ()  # why the run failed: what the request needs and is not here
        self.origin: PlanOrigin | None = None  # of the first part of the plan; None until it is complete
        self.plan_reason = ""
        self.plan_usage = Usage()
        self.planner = ""  # the model that is asked for the first part of the plan; empty if none is
        self.begun: tuple[float, ...] = ()  # when the run left the queue, and when it continued after each restart
        self.planned: dict[str, float] = {}  # when each step became part of the plan, children of `foreach` steps too
        self.plannings = 0  # how often the frontdoor was called for a part of the plan
        # Predictions for the plan and a direct answer, if they were compared.
        self.forecast = accepted.mode_choice.forecast if accepted.mode_choice is not None else None
        self.replaced: PlanReplaced | None = None  # a direct answer has replaced the failed plan
        self.replans: list[ReplanRow] = []
        self.attempts: dict[str, list[AttemptRow]] = {}
        self.outputs: dict[str, Mapping[str, str]] = {}  # of each step that is done: artifact name to digest
        self.reused: dict[str, str] = {}  # the earlier run that made these outputs, by step
        self.first: set[str] = set()  # the steps that the user wants first
        self.retry_keys: set[str] = set()  # idempotency keys of requests to make a step again
        # The outputs that the user wants, in order. If empty, those that no other step reads.
        self.wanted: tuple[str, ...] = accepted.task.plan.wanted if accepted.task is not None else ()
        self.checked: AnswerChecked | None = None  # the latest comparison of the answer with the request
        self.before_repair: dict[str, Mapping[str, str]] = {}  # outputs at the first comparison, by step
        self.doubt = ""  # why the answer of a run that is done is doubtful
        # What steps saw in the run's folder under names that they read or wrote: by composed name, the digest of each
        # version in the order of time; empty for no file.
        self.versions: dict[str, tuple[str, ...]] = {}
        # The files of the run's folder that outputs replace: digests of objects by composed name; empty for no file.
        self.originals: dict[str, str] = {}
        self.wall_seconds = 0.0  # up to the latest event, or to the end
        self.ratings: dict[str | None, tuple[RatingRow, ...]] = {}  # of the run (None) and of its steps, oldest first
        self._planning: tuple[float, float] = (0.0, 0.0)
        self._fans: dict[str, tuple[float | None, float | None]] = {}

    @classmethod
    def of(cls, events: Iterable[Event]) -> "RunView":
        """Return the view after `events`, of which the first is RunAccepted."""
        remaining = iter(events)
        view = cls(accepted_in(remaining))
        view.apply(*remaining)
        return view

    def apply(self, *events: Event) -> None:
        """Apply the next events. Raises IllegalTransition for one that the states of the steps do not allow."""
        for event in events:
            at = event.at - self.accepted.at
            if isinstance(event, RatingGiven):
                row = RatingRow(at, event.score, event.by, event.note)
                self.ratings[event.step] = (*self.ratings.get(event.step, ()), row)
            else:
                self.state.apply(event)
                self.wall_seconds = at
                self._apply_event(event, at)
            self.events += 1

    @property
    def ended(self) -> bool:
        return self.status in ("done", "failed", "cancelled")

    @property
    def title(self) -> str:
        """The request in words, or the objective of the task."""
        return self.accepted.request or (self.accepted.task.objective if self.accepted.task else "")

    @property
    def graph(self) -> StepGraph:
        """The graph of the known steps. Children of `foreach` steps are not in it."""
        return self.state.graph

    def steps(self) -> Iterator[RunStep]:
        """Yield the steps in topological order, children after their `foreach` step."""
        steps = self.state.steps
        for name in self.graph.order:
            step = steps[name]
            yield step
            for child in step.children or ():
                yield steps[child]

    def check_step(self, step: str) -> None:
        """Raise InputError if the run has no such step, or none yet."""
        steps = self.state.steps
        if step not in steps:
            listing = ", ".join(islice(steps, STEPS_NAMED)) or "none is planned yet"
            listing += ", ..." if len(steps) > STEPS_NAMED else ""
            raise InputError(Problem("step", f"run {self.accepted.run} has no step {step!r}", listing))

    @property
    def planning_seconds(self) -> float:
        """The time for the first part of the plan; steps may have started meanwhile."""
        begun, ended = self._planning
        return max(0.0, ended - begun)

    @property
    def planning_started(self) -> float:
        """When the first part of the plan was asked for; 0 if it was not."""
        return self._planning[0]

    def times(self, step: str) -> tuple[float | None, float | None]:
        """Return when a step started and when it ended; None for what has not happened."""
        if attempts := self.attempts.get(step):
            return attempts[0].started, attempts[-1].finished
        if step in self.reused:
            return self.planned[step], self.planned[step]
        begun, ended = self._fans.get(step, (None, None))
        # A `foreach` step that failed or was cancelled was never gathered: it ended with its last child.
        if ended is None and step in self._fans and self.state.steps.state_of(step) in FINAL:
            ends = (self.times(child)[1] for child in self.state.steps.children_of(step))
            ended = max((end for end in ends if end is not None), default=None)
        return begun, ended

    def _apply_event(self, event: Event, at: float) -> None:
        match event:
            case PlanningStarted(direct=direct):
                self.status = "planning"
                self.planner = "" if direct else event.model
                self.plannings += not direct
                self._planning = (at, at)
            case StepsPlanned(steps=steps):
                self._apply_new(tuple(step.id for step in steps), at)
            case PlanFinished():
                self._apply_planned(event, at)
            case PlanFailed(failure=failure, missing=missing):
                self.error, self.missing = failure.message, missing
            case ReplanStarted() | ReplanFinished() | PlanReplaced():
                self._apply_replan(event, at)
            case StepExpanded(step=step):
                self._fans[step] = (at, None)
                self.planned |= dict.fromkeys(self.state.steps.children_of(step), at)
            case StepGathered() | StepReused():
                self._apply_made(event, at)
            case AnswerChecked() | RunFinished():
                self._apply_end(event)
            case _:
                self._apply_attempt(event, at)

    def _apply_made(self, event: StepGathered | StepReused, at: float) -> None:
        if isinstance(event, StepReused):
            self.reused[event.step] = event.run
            self._see(event.reads)
        else:
            self._fans[event.step] = (self._fans.get(event.step, (at, None))[0], at)
        self.outputs[event.step] = event.outputs
        self._see(event.originals)
        self._keep_originals(event.originals)

    def _apply_planned(self, event: PlanFinished, at: float) -> None:
        self.origin, self.plan_reason, self.plan_usage = event.origin, event.reason, event.usage
        self.forecast, self.wanted = event.forecast or self.forecast, event.wanted or self.wanted
        self.status = "running" if self.status == "planning" else self.status
        self._planning = (self._planning[0], at)
        self.plannings += event.origin in ("repaired", "fallback")
        self._await(event.goes_on_after)

    def _apply_end(self, event: AnswerChecked | RunFinished) -> None:
        if isinstance(event, AnswerChecked):
            self.outputs |= {**event.restored, **event.corrected}
            self.before_repair = self.before_repair or dict(self.outputs)
            self.checked = event
            return
        self.status, self.error, self.doubt = event.status, event.error or self._unplanned(), event.doubt
        if self.replans and self.replans[-1].outcome in ("waiting", "planning"):
            self._change_replan(outcome="cancelled")

    def _apply_replan(self, event: ReplanStarted | ReplanFinished | PlanReplaced, at: float) -> None:
        if isinstance(event, PlanReplaced):
            self.replaced, self.wanted = event, event.answer.outputs
            self.planned[event.answer.id] = at
            return
        row = self.replans[-1]
        if isinstance(event, ReplanFinished) and event.wanted:
            self.wanted = event.wanted
        if isinstance(event, ReplanStarted):
            started = at if row.started is None else row.started
            self._change_replan(outcome="planning", model=event.model, started=started)
            return
        self._change_replan(outcome=event.outcome, reason=event.reason, usage=event.usage, finished=at)
        self.plannings += event.asked
        self._end_pause(at)
        self._await(event.goes_on_after)

    def _apply_new(self, steps: tuple[str, ...], at: float) -> None:
        self.planned |= dict.fromkeys(steps, at)
        if self.replans:  # else they are of the first part of the plan
            self._change_replan(steps=self.replans[-1].steps + steps)
            self._end_pause(at)

    def _await(self, step: str | None) -> None:
        if step is None:
            return
        most = self.accepted.max_replans
        if len(self.replans) < most:
            self.replans.append(ReplanRow(step, "waiting"))
        else:
            self.replans.append(ReplanRow(step, "refused", f"max_replans is {most}"))

    def _unplanned(self) -> str | None:
        if self.replaced is not None:
            return (
                f"the plan failed ({self.replaced.reason}), and {self.replaced.answer.id} answered the request directly"
            )
        short = (row for row in self.replans if row.outcome in ("stopped", "refused"))
        return "; ".join(f"the plan was cut short after {row.after}: {row.reason}" for row in short) or None

    def _end_pause(self, at: float) -> None:
        # Called with the first new step, or when there is none.
        row = self.replans[-1]
        if row.pause_seconds is None and row.started is not None:
            self._change_replan(pause_seconds=at - row.started)

    def _change_replan(self, **changed: Any) -> None:
        self.replans[-1] = replace(self.replans[-1], **changed)

    def _apply_attempt(self, event: Event, at: float) -> None:
        match event:
            case RunBegun():
                self.begun = (*self.begun, at)
                self.status = "running" if self.status == "queued" else self.status
            case AttemptStarted(step=step):
                self.status = "running"
                self._interrupt(step)
                self.attempts.setdefault(step, []).append(_begun(event, at))
            case ToolCalled() | ModelAwaited():
                self._apply_work(event, at)
            case AttemptGenerated(step=step, usage=usage, outputs=outputs):
                generated = {"generated": at, "made": outputs}
                self._change_attempt(step, event.number, outcome="checking", usage=usage, **generated)
            case AttemptSucceeded(step=step, outputs=outputs):
                self.outputs[step] = outputs
                self._see(event.reads)
                self._see(event.originals)
                self._keep_originals(event.originals)
                results = {"gates": event.gates, "reasoning": event.reasoning, "made": event.outputs}
                self._change_attempt(step, event.number, finished=at, outcome="done", **results)
            case AttemptFailed(step=step, number=0):
                self._fans[step] = (self._fans.get(step, (at, None))[0], at)
            case AttemptFailed(step=step, failure=failure):
                why = {"outcome": failure.kind, "message": failure.message}
                texts = {"reasoning": event.reasoning, "answer": event.answer}
                self._change_attempt(step, event.number, finished=at, gates=event.gates, **why, **texts)
                self._add_nodes(step, event.number, event.nodes)
            case AttemptCancelled(step=step):
                self._change_attempt(step, event.number, finished=at, outcome="cancelled")
            case StepPrioritised() | RetryRequested():
                self._apply_wish(event)

    def _add_nodes(self, step: str, number: int, nodes: tuple[str, ...]) -> None:
        # The usage of an attempt that failed has the nodes of its complete answers only.
        row = self._attempt(step, number)
        if row is not None and nodes:
            usage = replace(row.usage, nodes=tuple(dict.fromkeys((*row.usage.nodes, *nodes))))
            self._change_attempt(step, number, usage=usage)

    def _apply_wish(self, event: StepPrioritised | RetryRequested) -> None:
        if isinstance(event, StepPrioritised):
            self.first.add(event.step)
        elif event.key is not None:
            self.retry_keys.add(event.key)

    def _apply_work(self, event: ToolCalled | ModelAwaited, at: float) -> None:
        row = None if event.step is None else self._attempt(event.step, event.number)
        if row is None or event.step is None:
            return
        if isinstance(event, ModelAwaited):
            wait = WaitRow(at, event.model, event.reason, event.seconds)
            self._change_attempt(event.step, event.number, waits=(*row.waits, wait))
            return
        call = CallRow(
            event.tool,
            event.arguments,
            event.outcome,
            event.message,
            event.seconds,
            event.work_seconds,
            event.awaited_seconds,
            at,
        )
        self._change_attempt(event.step, event.number, calls=(*row.calls, call))

    def _see(self, files: Mapping[str, str]) -> None:
        # Each version once.
        for name, digest in files.items():
            composed = compose_name(name)
            earlier = self.versions.get(composed, ())
            self.versions[composed] = earlier if digest in earlier else (*earlier, digest)

    def _keep_originals(self, files: Mapping[str, str]) -> None:
        for name, digest in files.items():
            self.originals.setdefault(compose_name(name), digest)

    def _attempt(self, step: str, number: int) -> AttemptRow | None:
        return next((row for row in self.attempts.get(step, ()) if row.number == number), None)

    def _change_attempt(self, step: str, number: int, **changed: Any) -> None:
        rows = self.attempts.get(step, [])
        for index, row in enumerate(rows):
            if row.number == number:
                rows[index] = structs.replace(row, **changed)  # a new row, since reports share the old one

    def _interrupt(self, step: str) -> None:
        for row in self.attempts.get(step, ()):
            if row.finished is None:  # the process that ran it has ended without an event
                self._change_attempt(step, row.number, outcome="interrupted")


def _begun(event: AttemptStarted, at: float) -> AttemptRow:
    return AttemptRow(
        number=event.number,
        role=event.role,
        persona=event.persona,
        model=event.model,
        started=at,
        reason=event.reason,
        propensity=event.propensity,
        prompts=event.prompts,
    )


def accepted_in(events: Iterable[Event]) -> RunAccepted:
    """Return the first event of a run, which is RunAccepted."""
    accepted = next(iter(events))
    assert isinstance(accepted, RunAccepted), "a run's first event is RunAccepted"
    return accepted
