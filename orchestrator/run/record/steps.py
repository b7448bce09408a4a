"""Fold the events of a run into its plan and the state of each of its steps."""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from orchestrator.task.analysis import PlanAnalysis, StepGraph
from orchestrator.task.events import (
    AnswerChecked,
    AnswerDoubt,
    AttemptCancelled,
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    CancelRequested,
    Event,
    Failure,
    PlanFailed,
    PlanFinished,
    PlanReplaced,
    Prediction,
    ReplanFinished,
    ReplanStarted,
    RetryRequested,
    RunAccepted,
    RunFinished,
    StepExpanded,
    StepGathered,
    StepReused,
    StepsPlanned,
)
from orchestrator.task.failures import Escalate, FailedAttempt, GiveUp, chain_of, decide, doubted
from orchestrator.task.states import ACTIVE, FINAL, TRANSITIONS, Cause, IllegalTransition, State
from orchestrator.task.taskir.fields import REQUEST_LABEL
from orchestrator.task.taskir.models import Step, TaskIR

_StepEvent = (
    AttemptStarted
    | AttemptGenerated
    | AttemptSucceeded
    | AttemptFailed
    | AttemptCancelled
    | StepExpanded
    | StepGathered
    | StepReused
)


@dataclass(slots=True)
class RunStep:
    """A step, or a child of a `foreach` step, after the events so far. It changes with the next events."""

    step: Step
    role: str  # of the current attempt, else of the next one
    parent: str | None = None  # the `foreach` step that this is a child of
    state: State = State.WAITING
    attempts: int = 0  # how many were requested
    cause: Cause | None = None  # why the step failed, was cancelled, or is to be cancelled
    children: tuple[str, ...] | None = None  # of a `foreach` step; None until its list is read
    started: bool = False  # whether the latest attempt has started
    restarting: bool = False  # the user wants that attempt stopped and another one
    requested_role: str = ""  # of the latest attempt, which a router may have replaced
    failures: tuple[FailedAttempt, ...] = ()  # oldest first
    unmet: int = 0  # how many steps it still waits for
    pending: int = 0  # how many children have not ended
    repairing: bool = False  # it was done, and runs again because the answer is doubtful; it ends as done in any case

    @property
    def id(self) -> str:
        return self.step.id

    @property
    def fans_out(self) -> bool:
        """Whether the step runs as its children and makes no attempt of its own."""
        return self.step.foreach is not None and self.parent is None

    @property
    def cancelling(self) -> bool:
        """Whether the step ends cancelled as soon as its current work has stopped."""
        return self.cause is not None and self.state not in FINAL

    @property
    def can_be_restarted(self) -> bool:
        """Whether an attempt runs that may be stopped and made again."""
        return self.started and self.state in ACTIVE and not (self.cancelling or self.restarting)

    def failed(self, failure: Failure, answer: str = "") -> FailedAttempt:
        requested = None if self.requested_role == self.role else self.requested_role
        return FailedAttempt(self.role, failure, requested, answer)


class RunSteps(dict[str, RunStep]):
    """Every step and child of a run by its id, in the order of creation."""

    def state_of(self, step: str) -> State:
        return self[step].state

    def children_of(self, step: str) -> tuple[str, ...]:
        """Return the children of a step; none if it is no `foreach` step."""
        return self[step].children or ()

    def parent_of(self, step: str) -> str | None:
        return self[step].parent


class PlanRecord:
    """The plan of a run, the state of each step, and the predictions that were made.

    States follow from what the events say. A step counts as running once it may start, and in a run that limits how
    many steps run at once, when its attempt starts: the order in which steps wait for a slot is in no event.
    """

    def __init__(self, accepted: RunAccepted) -> None:
        task = accepted.task
        self.steps = RunSteps()
        self.predicted: dict[str, Prediction] = {}  # empty in runs of early versions
        self._analysis = _analysis_of(accepted)
        self._accepted = accepted
        self._is_limited = accepted.mode == "serial" or (task is not None and _limits(task))
        self._to_cancel: deque[tuple[RunStep, Cause]] = deque()
        self._unfinished = 0
        self._direct: str | None = None  # the step that has replaced a failed plan
        self._is_open = True  # more steps may come
        self._after: str | None = None  # the step after which planning continues
        self._awaited = False  # whether that step has not ended
        self._replans_left = accepted.max_replans
        self._stopped: Cause | None = None  # why no step starts any more
        self._ended = False
        # The comparison of the answer with the request, which follows when all steps are done.
        self._check: Literal["due", "asked", "repairing", "asked again", "over"] = (
            "due" if task is None or task.plan.check_answer else "over"
        )
        self._may_repair = True

    @property
    def graph(self) -> StepGraph:
        """The known part of the plan. Children of `foreach` steps are not in it."""
        return self._analysis.graph

    @property
    def growing(self) -> bool:
        """Whether more steps may come."""
        return self._is_open and not self._ended

    @property
    def is_answered(self) -> bool:
        """Whether all steps were done and only the answer is checked, so that the run will be done whatever happens."""
        return self._check in ("asked", "repairing", "asked again")

    def apply(self, event: Event) -> None:
        """Apply the next event. Raises IllegalTransition for one that the states do not allow, and InvalidTask."""
        if self._ended:
            raise IllegalTransition(None, f"{event.kind} came after the run had finished")
        match event:
            case StepsPlanned() | PlanReplaced():
                self._grow(event)
            case ReplanStarted():
                self._require_continues(event)
            case PlanFinished() | ReplanFinished() | PlanFailed():
                self._end_part(event)
            case CancelRequested():
                self._cancel_requested(event)
            case RetryRequested():
                self._retry_requested(event)
            case AnswerChecked():
                self._answer_checked(event)
            case RunFinished():
                self._finish(event)
            case _:
                self._apply_to_step(event)
        self._settle()
        self._follow_plan()

    def _grow(self, event: StepsPlanned | PlanReplaced) -> None:
        if isinstance(event, StepsPlanned):
            self._analysis.add(event.steps)
            self._predict(event.predicted, event.slowed)
            self._add(event.steps)
        else:
            self._analysis.add_apart(event.answer)
            self._predict(event.predicted, {})
            self._direct, self._is_open = event.answer.id, False
            self._add((event.answer,))

    def _predict(self, predicted: Mapping[str, Prediction], slowed: Mapping[str, float]) -> None:
        self.predicted |= predicted
        for step, seconds in slowed.items():
            if step in self.predicted:
                self.predicted[step] = replace(self.predicted[step], seconds=seconds)

    def _add(self, steps: Sequence[Step]) -> None:
        self._unfinished += len(steps)
        for step in steps:
            self.steps[step.id] = RunStep(step, step.actor, requested_role=step.actor)
        for step in steps:
            row, before = self.steps[step.id], [self.steps[earlier] for earlier in self.graph.before[step.id]]
            row.unmet = sum(earlier.state is not State.DONE for earlier in before)
            ended = next((earlier.cause for earlier in before if earlier.state in FINAL and earlier.cause), None)
            if cause := self._stopped or ended:
                self._to_cancel.append((row, cause))
            elif not row.unmet:
                self._move(row, State.READY)

    def _end_part(self, event: PlanFinished | ReplanFinished | PlanFailed) -> None:
        if isinstance(event, ReplanFinished):
            self._require_continues(event)
        if isinstance(event, PlanFinished) and event.origin == "procedure":
            self._check = "over"
        if isinstance(event, PlanFailed):
            self._is_open = False
            self._stop("; ".join(event.missing) or f"no plan: {event.failure.message}")
        elif event.goes_on_after is None or not self._replans_left:
            self._is_open = False
        elif event.goes_on_after not in self.steps:
            raise IllegalTransition(event.goes_on_after, "the plan continues after it, but there is no such step")
        else:
            self._after, self._awaited = event.goes_on_after, True
            self._replans_left -= 1

    def _require_continues(self, event: ReplanStarted | ReplanFinished) -> None:
        if event.after != self._after:
            raise IllegalTransition(event.after, f"{event.kind}, but the plan does not continue after it")

    def _follow_plan(self) -> None:
        if self._awaited and self._after is not None and self._stopped is None:
            state = self.steps[self._after].state
            if state in FINAL:
                self._awaited, self._is_open = False, state is State.DONE  # nothing follows from a step that failed
        if not (self._unfinished or self._is_open or self._stopped or self._ended) and self._is_done():
            if self._check == "due":
                self._check = "asked"
            elif self._check == "repairing":
                self._check = "asked again"

    def _is_done(self) -> bool:
        if self._direct is not None and self.steps[self._direct].state is State.DONE:
            return True
        return all(self.steps[step].state is State.DONE for step in self.graph.steps)

    def _move(self, row: RunStep, to: State) -> None:
        if (row.state, to) not in TRANSITIONS:
            raise IllegalTransition(row.id, f"cannot go from {row.state} to {to}")
        row.state = to
        if to is State.READY:
            row.started = row.restarting = False
            if not self._is_limited:
                self._move(row, State.RUNNING)
        elif to is State.RUNNING:
            row.attempts += not row.fans_out
        elif to in FINAL:
            self._end(row)

    def _end(self, row: RunStep) -> None:
        # The steps that wait for this one may start, or are cancelled.
        self._unfinished -= 1
        if row.parent is not None:
            parent = self.steps[row.parent]
            parent.pending -= 1
            if not parent.pending:
                self._join(parent)
            return
        for dependant in map(self.steps.__getitem__, self.graph.after[row.id]):
            if row.cause:
                self._to_cancel.append((dependant, row.cause))
                continue
            dependant.unmet -= 1
            if not dependant.unmet and dependant.state is State.WAITING:
                self._move(dependant, State.READY)

    def _join(self, row: RunStep) -> None:
        # A `foreach` step whose children are done is gathered later. Else it ends like the first child that failed,
        # or was cancelled.
        if row.cause:
            self._move(row, State.CANCELLED)
            return
        children = [self.steps[child] for child in row.children or ()]
        failed = [child for child in children if child.state is State.FAILED]
        row.cause = next((child.cause for child in (*failed, *children) if child.cause), None)
        if row.cause is not None:
            self._move(row, State.FAILED if failed else State.CANCELLED)

    def _apply_to_step(self, event: Event) -> None:
        match event:
            case AttemptStarted():
                self._start(event)
            case AttemptGenerated() if row := self._subject(event):
                self._move(row, State.CHECKING)
            case AttemptSucceeded() | StepGathered() if row := self._uncancelled(event):
                row.repairing = False
                self._move(row, State.DONE)
            case AttemptFailed() if row := self._uncancelled(event):
                self._fail(row, event)
            case AttemptCancelled() if row := self._subject(event):
                self._end_attempt(row)
            case StepReused() if row := self._uncancelled(event):
                row.attempts -= not row.fans_out  # the attempt that was requested is not made
                self._move(row, State.DONE)
            case StepExpanded() if row := self._uncancelled(event):
                self._expand(row, event.count)

    def _subject(self, event: _StepEvent) -> RunStep | None:
        # None if the step has ended, such as by a cancellation: the event has no effect.
        row = self.steps.get(event.step)
        if row is None:
            raise IllegalTransition(event.step, f"{event.kind}, but there is no such step")
        if row.state in FINAL:
            return None
        if row.pending or row.state is State.WAITING:
            raise IllegalTransition(row.id, f"unexpected {event.kind}: {event}")
        if row.state is State.READY:
            self._move(row, State.RUNNING)
        return row

    def _uncancelled(self, event: _StepEvent) -> RunStep | None:
        row = self._subject(event)
        if row is not None and row.cancelling:
            self._end_cancelling(row)
            return None
        return row

    def _start(self, event: AttemptStarted) -> None:
        row = self._subject(event)
        if row is None:  # cancelled while it waited for its slot, as far as the events tell
            self.steps[event.step].role = event.role
            return
        if row.started:  # the attempt before was lost in a restart
            row.role, row.state = row.requested_role, State.RUNNING
        row.attempts, row.started, row.restarting = event.number, True, False
        row.requested_role, row.role = row.role, event.role

    def _end_attempt(self, row: RunStep) -> None:
        if row.cancelling or not row.restarting:
            self._end_cancelling(row)
        else:
            row.restarting, row.role = False, row.requested_role
            self._move(row, State.READY)

    def _retry_requested(self, event: RetryRequested) -> None:
        row = self.steps.get(event.step)
        if row is not None and row.can_be_restarted:
            row.restarting = True

    def _fail(self, row: RunStep, event: AttemptFailed) -> None:
        if row.repairing:
            self._end_repair(row)
            return
        failed, earlier = row.failed(event.failure, event.answer), row.failures
        row.failures = (*earlier, failed)
        decision = None if row.fans_out else decide(failed, earlier, chain_of(self._accepted))
        if decision is None:
            self._give_up(row, event.failure.message)
        elif isinstance(decision, GiveUp):
            self._give_up(row, f"{event.failure.message} ({decision.reason})")
        else:
            row.role = decision.role if isinstance(decision, Escalate) else row.role
            self._move(row, State.READY)

    def _give_up(self, row: RunStep, reason: str) -> None:
        row.cause = Cause(row.id, reason)
        self._move(row, State.FAILED)

    def _expand(self, row: RunStep, count: int) -> None:
        children = [_child(row.step, item) for item in range(count)]
        row.children, row.pending = tuple(child.id for child in children), count
        self._unfinished += count
        for child in children:
            self.steps[child.id] = RunStep(child, child.actor, row.id, requested_role=child.actor)
        for child in children:
            self._move(self.steps[child.id], State.READY)

    def _answer_checked(self, event: AnswerChecked) -> None:
        is_first, self._check = self._check == "asked", "over"
        if not (is_first and self._may_repair):
            return
        by_step = defaultdict[str, list[AnswerDoubt]](list)
        for doubt in event.doubts:
            by_step[doubt.step].append(doubt)
        for step, doubts in by_step.items():
            row = self.steps.get(step)
            # Only text that one attempt has written, and that no other step has read, is written once more.
            if row is not None and _can_be_repaired(row) and not self.graph.after[step]:
                row.failures = (*row.failures, row.failed(doubted(doubts)))
                row.repairing, self._check = True, "repairing"
                self._unfinished += 1
                self._move(row, State.READY)

    def _end_repair(self, row: RunStep) -> None:
        # The earlier output stands, since there will be no better one.
        row.repairing, row.cause = False, None
        self._move(row, State.DONE)

    def _cancel_requested(self, event: CancelRequested) -> None:
        if event.step is not None:
            if event.step in self.steps:
                self._to_cancel.append((self.steps[event.step], Cause(event.step, event.reason)))
        elif self.is_answered:  # the run ends with its answer, and only the repair is cancelled
            self._may_repair, cause = False, Cause(None, event.reason)
            self._to_cancel.extend((row, cause) for row in self.steps.values() if row.repairing)
        else:
            self._stop(event.reason)

    def _stop(self, reason: str) -> None:
        self._stopped = Cause(None, reason)
        self._to_cancel.extend((row, self._stopped) for row in self.steps.values())

    def _settle(self) -> None:
        # Cancelling a step may put the steps that depend on it into the same queue.
        while self._to_cancel:
            self._cancel(*self._to_cancel.popleft())

    def _cancel(self, row: RunStep, cause: Cause) -> None:
        # Now, or as soon as its attempt has stopped.
        if row.cause or row.state in FINAL:
            return
        row.cause = cause
        if row.state not in ACTIVE:
            self._end_cancelling(row)
        elif row.fans_out:
            self._to_cancel.extend((self.steps[child], cause) for child in row.children or ())

    def _end_cancelling(self, row: RunStep) -> None:
        if row.repairing:
            self._end_repair(row)
        else:
            self._move(row, State.CANCELLED)

    def _finish(self, event: RunFinished) -> None:
        self._end_cancelled()
        if event.status == "failed":
            # Early versions gave up steps that would be retried by today's rules.
            for row in self.steps.values():
                waits = row.state is State.READY or (row.state is State.RUNNING and not row.started)
                if waits and row.failures and not row.cancelling:
                    row.state = State.RUNNING
                    self._give_up(row, row.failures[-1].failure.message)
        cause = Cause(None, event.error or f"the run ended as {event.status}")
        self._to_cancel.extend((row, cause) for row in self.steps.values())
        self._settle()
        self._end_cancelled()
        self._ended = True

    def _end_cancelled(self) -> None:
        # Without waiting for attempts to stop.
        for name in reversed(tuple(self.steps)):  # children before their parents
            if self.steps[name].cancelling:
                self._end_cancelling(self.steps[name])
        self._settle()


def _analysis_of(accepted: RunAccepted) -> PlanAnalysis:
    task = accepted.task
    labels, paths = ((REQUEST_LABEL,), {}) if task is None else (task.labels, task.paths_by_label)
    return PlanAnalysis(labels, accepted.files, accepted.mode, paths)


def _limits(task: TaskIR) -> bool:
    parallelism = task.plan.parallelism
    limits = () if parallelism is None else (parallelism.max_concurrent_steps, parallelism.max_concurrent_workers)
    return any(limits) or any(agent.max_concurrency for agent in task.agents)


def _child(step: Step, item: int) -> Step:
    names = tuple(f"{name}[{item}]" for name in step.outputs)
    return step.model_copy(update={"id": f"{step.id}[{item}]", "outputs": names})


def _can_be_repaired(row: RunStep) -> bool:
    return not row.step.acts and not row.fans_out and row.parent is None and row.state is State.DONE
