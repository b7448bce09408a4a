"""Run a plan: turn each event of a run into the commands that follow from it. Pure, and the same for every replay.

The heart is `RunState.handle`: *apply the event, cancel what it cancels, dispatch what is ready, continue the plan,
finish when all is over*. Every change of a step's state goes through `RunState._move`, which checks `TRANSITIONS`.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

from orchestrator.run.scheduler.commands import (
    CancelAttempt,
    CheckAnswer,
    Command,
    ExtendPlan,
    HurryAttempt,
    RestartAttempt,
)
from orchestrator.run.scheduler.progress import AnswerCheck, Ending, Estimate, PlanProgress, answer_directly, outcome
from orchestrator.run.scheduler.queue import ConcurrencyLimits, Rank, ReadyQueue
from orchestrator.run.scheduler.step import (
    StepEvent,
    StepRecord,
    StepViews,
    expand_children,
    outcome_of_children,
)
from orchestrator.task.analysis import NO_PATHS, PlanAnalysis, StepGraph
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
    ModelAwaited,
    NoteChanged,
    PlanFailed,
    PlanFinished,
    PlanningStarted,
    PlanReplaced,
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
)
from orchestrator.task.failures import EscalationChain, FailureResponse, GiveUp, chain_of, decide
from orchestrator.task.modes import Mode, RunStatus
from orchestrator.task.prediction import predict_run
from orchestrator.task.states import ACTIVE, FINAL, TRANSITIONS, Cause, IllegalTransition, State
from orchestrator.task.taskir.fields import REQUEST_LABEL
from orchestrator.task.taskir.models import Agent, Parallelism, Step


class RunState:
    """The state of a run. It is built empty, and changed by events alone.

    `labels`, `files` and `paths` are what the steps may read in addition to artifacts, as in `analyze`. `max_replans`
    limits how often planning may continue. With `may_answer_directly`, one step that does the whole request replaces a
    plan that fails. With `checks_answer` the answer is compared with the request before the run ends.
    """

    def __init__(
        self,
        *,
        mode: Mode,
        escalation: EscalationChain,
        parallelism: Parallelism | None = None,
        agents: Sequence[Agent] = (),
        labels: Collection[str] = (),
        files: Collection[str] = (),
        paths: Mapping[str, str] = NO_PATHS,
        # For steps whose events hold no prediction. It only decides the order of steps, so it may change between a run
        # and its replay.
        estimate: Estimate = lambda graph: dict.fromkeys(graph.order, 1.0),
        max_replans: int = 0,
        may_answer_directly: bool = False,
        checks_answer: bool = False,
    ) -> None:
        self.mode = mode
        self._escalation = escalation
        self._plan = PlanProgress(
            PlanAnalysis(labels, files, mode, paths), mode, estimate, max_replans, replaceable=may_answer_directly
        )
        self._steps: dict[str, StepRecord] = {}
        self._queue = ReadyQueue(ConcurrencyLimits.of(mode, parallelism or Parallelism(), agents))
        self._first: set[str] = set()  # the steps that the user wants first, and those that these wait for
        self._to_cancel: deque[tuple[StepRecord, Cause]] = deque()
        self._commands: list[Command] = []
        self._unfinished = 0
        self._planning = False
        self._ending = Ending()
        self._answer = AnswerCheck(due=checks_answer)
        self._take_in: Mapping[type[Event], Callable[[Any], None]] = {
            RunAccepted: lambda event: None,
            RunBegun: lambda event: None,
            PlanningStarted: self._on_planning,
            StepsPlanned: self._on_planned,
            PlanFinished: self._on_plan_finished,
            PlanFailed: self._on_plan_failed,
            ReplanStarted: self._plan.begin_rest,
            ReplanFinished: self._plan.finish_rest,
            PlanReplaced: self._on_replaced,
            AttemptStarted: self._on_started,
            ToolCalled: lambda event: None,
            NoteChanged: lambda event: None,
            ModelAwaited: lambda event: None,
            AttemptGenerated: self._on_generated,
            AttemptSucceeded: self._on_done,
            AttemptFailed: self._on_failed,
            AttemptCancelled: self._on_attempt_cancelled,
            StepExpanded: self._on_expanded,
            StepGathered: self._on_done,
            CancelRequested: self._on_cancel,
            RetryRequested: self._on_retry,
            StepPrioritised: self._on_prioritised,
            StepReused: self._on_reused,
            AnswerChecked: self._on_answer_checked,
            RunFinished: self._on_finished,
        }

    def handle(self, *events: Event) -> list[Command]:
        """Apply events in order, and return the commands that follow from them, in order.

        Raises IllegalTransition for an event that cannot happen now, and InvalidTask for steps that do not fit the
        plan. Such an event changes nothing.
        """
        for event in events:
            if self._ending.finished:
                raise IllegalTransition(None, f"{event.kind} came after the run had finished")
            self._take_in[type(event)](event)
            self._advance()
        return self._drain()

    def resume(self) -> list[Command]:
        """Return the commands to start with after a restart, once the journal's events were handled."""
        self._commands = []
        self._plan.ask_again()
        self._ending.ask_again()
        self._answer.ask_again()
        for record in self._steps.values():
            # This is not a retry: the attempt runs again, under the next number if it had started. If its outputs are
            # stored, only its gates run again.
            if record.state in ACTIVE:
                self._ask_again(record)
        self._advance()
        return self._drain()

    def _advance(self) -> None:
        self._settle()
        self._dispatch()
        self._go_on_with_plan()
        self._finish_when_over()

    def _settle(self) -> None:
        # Cancelling a step may put the steps that depend on it into the same queue.
        while self._to_cancel:
            self._cancel(*self._to_cancel.popleft())

    def _dispatch(self) -> None:
        while (step := self._queue.first()) is not None:
            record = self._steps[step]
            self._move(record, State.RUNNING)
            self._commands.append(record.command())

    def _go_on_with_plan(self) -> None:
        awaited = self._plan.awaited
        if awaited is None or self._ending.is_due:
            return
        state = self._steps[awaited].state
        if state is State.DONE:
            self._plan.ask()
            self._commands.append(ExtendPlan(awaited))
        elif state in FINAL:  # it failed or was cancelled, so nothing can follow from it
            self._plan.close()

    def _finish_when_over(self) -> None:
        if self._unfinished or self._ending.is_asked or (self._plan.is_open and not self._ending.is_due):
            return
        steps = [self._steps[step] for step in self.graph.steps]
        end, stopped = outcome(steps, self._plan.direct), self._ending.is_due
        if not stopped and self._plan.replaceable and (command := answer_directly(steps)) is not None:
            self._plan.ask_directly()
            self._commands.append(command)
        elif not stopped and end.status == "done" and self._answer.ask():
            self._commands.append(CheckAnswer())
        elif not self._answer.has_begun:
            self._commands.append(self._ending.ask(end, self._answer.doubt))

    def _move(self, record: StepRecord, to: State) -> None:
        """Change the state of a step, with all that follows from it. Nothing else changes states."""
        if (record.state, to) not in TRANSITIONS:
            raise IllegalTransition(record.id, f"cannot go from {record.state} to {to}", record.state_history)
        if record.state is State.READY:
            self._queue.remove(record.id)
        if to not in ACTIVE:
            self._queue.release(record.id)
        record.state = to
        record.state_history.append(to)
        if to is State.READY:
            self._queue.push(record.id, record.lane, record.place)
        elif to is State.RUNNING:
            self._queue.hold(record.id, record.lane)
            record.number, record.started, record.restarting = record.next_number, False, False
        elif to in FINAL:
            self._end(record)

    def _end(self, record: StepRecord) -> None:
        # The steps that wait for this one become ready, or are cancelled.
        self._unfinished -= 1
        if record.parent:
            record.parent.pending -= 1
            if not record.parent.pending:
                self._join(record.parent)
            return
        for dependant in map(self._steps.__getitem__, self.graph.after[record.id]):
            if record.cause:
                self._to_cancel.append((dependant, record.cause))
                continue
            dependant.unmet -= 1
            if not dependant.unmet and dependant.state is State.WAITING:
                self._move(dependant, State.READY)

    def _on_planning(self, event: PlanningStarted) -> None:
        self._planning = True

    def _on_planned(self, event: StepsPlanned) -> None:
        self._add(event.steps, self._plan.grow(event))

    def _on_replaced(self, event: PlanReplaced) -> None:
        self._add((event.answer,), self._plan.replace(event))

    def _add(self, steps: Sequence[Step], ranks: Mapping[str, Rank]) -> None:
        self._rank(steps, ranks)
        for step in steps:
            record = self._steps[step.id]
            before = [self._steps[earlier] for earlier in self.graph.before[step.id]]
            record.unmet = sum(earlier.state is not State.DONE for earlier in before)
            failed_before = next(
                (earlier.cause for earlier in before if earlier.state in FINAL and earlier.cause), None
            )
            if cause := self._ending.cause or failed_before:
                self._to_cancel.append((record, cause))
            elif not record.unmet:
                self._move(record, State.READY)

    def _rank(self, new: Sequence[Step], ranks: Mapping[str, Rank]) -> None:
        # New steps change the chains of earlier ones, so the whole plan is ranked again.
        for record in self._steps.values():
            rank = ranks[record.parent.id if record.parent else record.id]
            record.rank = rank.first if self._goes_first(record) else rank
        self._steps.update((step.id, StepRecord(step, ranks[step.id])) for step in new)
        self._unfinished += len(new)
        self._sort_queue()

    def _goes_first(self, record: StepRecord) -> bool:
        return record.id in self._first or (record.parent is not None and record.parent.id in self._first)

    def _sort_queue(self) -> None:
        self._queue.replace({step: self._steps[step].place for step in self._queue.ready})

    def _on_plan_finished(self, event: PlanFinished) -> None:
        self._plan.finish_first(event)
        if event.origin == "procedure":
            self._answer.skip()

    def _on_plan_failed(self, event: PlanFailed) -> None:
        self._plan.finish_first(event)
        self._stop("failed", "; ".join(event.missing) or f"no plan: {event.failure.message}")

    def _on_started(self, event: AttemptStarted) -> None:
        if record := self._subject(event):
            if record.started:  # the previous attempt was lost in a restart
                self._lose(record)
                self._move(record, State.RUNNING)
            record.start(event)
            if self._queue.holders.get(record.id, record.lane) != record.lane:  # a router chose another role
                self._queue.release(record.id)
                self._queue.hold(record.id, record.lane)
        else:  # it is cancelled. In a replay that had given it no slot before, this tells who had begun.
            self._steps[event.step].role = event.role

    def _on_generated(self, event: AttemptGenerated) -> None:
        if record := self._subject(event):
            self._move(record, State.CHECKING)
            record.outputs = event.outputs

    def _on_done(self, event: AttemptSucceeded | StepGathered) -> None:
        if record := self._uncancelled(event):
            record.repairing = False
            self._move(record, State.DONE)

    def _on_reused(self, event: StepReused) -> None:
        if record := self._uncancelled(event):
            record.number -= not record.fans_out  # the attempt that was requested is not made
            self._move(record, State.DONE)

    def _on_attempt_cancelled(self, event: AttemptCancelled) -> None:
        record = self._subject(event)
        if record is None:
            return
        if record.cancelling or not record.restarting:
            self._end_cancelling(record)
        else:
            record.restart()
            self._move(record, State.READY)

    def _on_failed(self, event: AttemptFailed) -> None:
        record = self._uncancelled(event)
        if record is None:
            return
        if record.repairing:
            self._end_repair(record)
            return
        failed, history = record.failed(event.failure, event.answer), tuple(record.failures)
        record.failures.append(failed)
        if record.fans_out:
            self._fail(record, event.failure.message)
        else:
            self._follow(decide(failed, history, self._escalation), record)

    def _follow(self, decision: FailureResponse, record: StepRecord) -> None:
        record.take_up(decision)
        if isinstance(decision, GiveUp):
            self._fail(record, f"{record.failures[-1].failure.message} ({decision.reason})")
        else:
            self._move(record, State.READY)

    def _fail(self, record: StepRecord, reason: str) -> None:
        record.cause = Cause(record.id, reason)
        self._move(record, State.FAILED)

    def _subject(self, event: StepEvent) -> StepRecord | None:
        # None if the step, or the repair of its output, is cancelled already: the event has no effect.
        if event.step not in self._steps:
            raise IllegalTransition(event.step, f"{event.kind}, but there is no such step")
        record = self._steps[event.step]
        if record.state is State.CANCELLED or (record.state is State.DONE and record.repaired):
            return None
        if not record.expects(event):
            raise IllegalTransition(record.id, f"unexpected {event.kind}: {event}", record.state_history)
        # A replay whose estimates differ from those of the run orders ready steps differently. Then the event counts.
        if record.state is State.READY:
            self._move(record, State.RUNNING)
        return record

    def _uncancelled(self, event: StepEvent) -> StepRecord | None:
        record = self._subject(event)
        if record and record.cancelling:
            self._end_cancelling(record)  # it was to be cancelled: now it is
            return None
        return record

    def _end_cancelling(self, record: StepRecord) -> None:
        record.role = record.interrupted_role or record.role  # as in a replay, which knows of no restart
        if record.repairing:
            self._end_repair(record)  # its earlier output is done, and stays so
        else:
            self._move(record, State.CANCELLED)

    def _on_answer_checked(self, event: AnswerChecked) -> None:
        if not self._answer.take(event):
            return
        by_step = defaultdict[str, list[AnswerDoubt]](list)
        for doubt in event.doubts:
            by_step[doubt.step].append(doubt)
        for step, doubts in by_step.items():
            record = self._steps.get(step)
            # Only if it can be written once more, and no other step has read it.
            if record is not None and record.can_be_repaired and not self.graph.after[step]:
                record.begin_repair(doubts)
                self._unfinished += 1
                self._answer.repair()
                self._move(record, State.READY)

    def _end_repair(self, record: StepRecord) -> None:
        # The earlier output stands, since there will be no better one.
        record.end_repair()
        self._move(record, State.DONE)

    def _ask_again(self, record: StepRecord) -> None:
        # Repeat the command that a restart interrupted.
        if record.pending:
            return
        if record.cancelling and not record.fans_out:
            self._queue.release(record.id)
            record.lost = True
            self._commands.append(CancelAttempt(record.id, record.number))
        elif record.cancelling or record.children is not None:
            self._commands.append(record.command())
        elif record.state is State.CHECKING and record.outputs and not record.restarting:
            self._commands.append(record.check())
        else:
            self._lose(record)

    def _lose(self, record: StepRecord) -> None:
        record.lose()
        self._move(record, State.READY)

    def _on_expanded(self, event: StepExpanded) -> None:
        record = self._uncancelled(event)
        if record is None:
            return
        self._queue.release(record.id)
        children = expand_children(record, event.count)
        self._unfinished += len(children)
        self._steps.update((child.id, child) for child in children)
        for child in children:
            self._move(child, State.READY)
        if not children:
            self._gather(record)

    def _join(self, record: StepRecord) -> None:
        if (end := outcome_of_children(record)) is None:
            self._gather(record)
        else:
            to, record.cause = end
            self._move(record, to)

    def _gather(self, record: StepRecord) -> None:
        # The limits are not checked, since the last child has just given its slot back.
        self._queue.hold(record.id, record.lane)
        self._commands.append(record.command())

    def _on_cancel(self, event: CancelRequested) -> None:
        if event.step is None and self._answer.has_begun:
            # All steps were done: the run ends with its answer, and only the repair is cancelled.
            self._answer.stop()
            cause = Cause(None, event.reason)
            self._to_cancel.extend((record, cause) for record in self._steps.values() if record.repairing)
        elif event.step is None:
            self._stop("cancelled", event.reason)
        elif event.step in self._steps:  # it is no error if there is no such step
            self._to_cancel.append((self._steps[event.step], Cause(event.step, event.reason)))

    def _on_retry(self, event: RetryRequested) -> None:
        # It is no error if there is nothing to stop: the attempt may have ended meanwhile.
        record = self._steps.get(event.step)
        if record is not None and record.can_be_restarted:
            record.restarting = True
            self._commands.append(RestartAttempt(record.id, record.number))

    def _on_prioritised(self, event: StepPrioritised) -> None:
        if event.step not in self._steps:
            return
        parent = self._steps[event.step].parent
        before = [event.step, *(self.graph.before[parent.id] if parent else ())]
        while before:
            step = before.pop()
            if step not in self._first:
                self._first.add(step)
                before += self.graph.before.get(step, ())
        for record in self._steps.values():
            if self._goes_first(record) and record.rank != record.rank.first:
                record.rank = record.rank.first
                if record.state in ACTIVE and not (record.fans_out or record.cancelling):
                    self._commands.append(HurryAttempt(record.id, record.number))
        self._sort_queue()

    def _stop(self, status: Literal["failed", "cancelled"], reason: str) -> None:
        cause = self._ending.stop(status, reason)
        self._to_cancel.extend((record, cause) for record in self._steps.values())

    def _cancel(self, record: StepRecord, cause: Cause) -> None:
        # Now, or as soon as its attempt has stopped.
        if record.cause or record.state in FINAL:
            return
        record.cause = cause
        if record.state not in ACTIVE:
            self._end_cancelling(record)
        elif record.fans_out:
            self._to_cancel.extend((child, cause) for child in record.children or ())
        else:
            self._commands.append(CancelAttempt(record.id, record.number))

    def _on_finished(self, event: RunFinished) -> None:
        cause = self._ending.finish(event)
        self._end_cancelled()
        if event.status == "failed":
            # A step that would be retried by today's rules was given up by the rules of an earlier version.
            self._fail_given_up()
        self._to_cancel.extend((record, cause) for record in self._steps.values())
        self._settle()
        self._end_cancelled()
        self._commands.clear()

    def _fail_given_up(self) -> None:
        for record in self._steps.values():
            awaits_attempt = record.state is State.READY or (record.state is State.RUNNING and not record.started)
            if awaits_attempt and record.failures and not record.cancelling:
                if record.state is State.READY:
                    self._move(record, State.RUNNING)
                self._fail(record, record.failures[-1].failure.message)

    def _end_cancelled(self) -> None:
        # Without waiting for attempts to stop.
        for record in reversed(self._steps.values()):  # children before their parents
            if record.cancelling:
                self._end_cancelling(record)
        self._settle()

    def check(self, steps: Sequence[Step]) -> None:
        """Check whether these steps may be planned next, and change nothing. Raises InvalidTask.

        The analysis is kept, so that StepsPlanned with these steps need not repeat it.
        """
        self._plan.check(steps)

    def graph_with(self, steps: Sequence[Step]) -> StepGraph:
        """Return the graph of the plan with these steps, which are planned next. Raises InvalidTask as `check` does."""
        return self._plan.graph_with(steps)

    def admits(self, step: str, role: str) -> bool:
        """Return whether the limits allow `role` to do this step, which is asked to start."""
        record = self._steps[step]
        return role == record.role or self._queue.admits_instead(record.lane, role)

    @property
    def graph(self) -> StepGraph:
        """The known part of the plan. Children of `foreach` steps are not in it."""
        return self._plan.graph

    @property
    def growing(self) -> bool:
        """Whether more steps may come."""
        return self._plan.is_open and not self._ending.finished

    @property
    def is_answered(self) -> bool:
        """Whether all steps were done and only the answer is checked, so that the run will be done whatever happens."""
        return self._answer.has_begun

    @property
    def steps(self) -> StepViews:
        """Every step and child, in the order of creation. A view is made on access."""
        return StepViews(self._steps)

    @property
    def status(self) -> RunStatus:
        if self._ending.finished:
            return self._ending.finished.status
        if self._steps:
            return "running"
        return "planning" if self._planning else "queued"

    def _drain(self) -> list[Command]:
        commands, self._commands = self._commands, []
        return commands


def fresh_state(accepted: RunAccepted) -> RunState:
    """Return the scheduler's state of a run after RunAccepted."""
    task = accepted.task

    def estimate(graph: StepGraph) -> dict[str, float]:
        return {name: prediction.seconds for name, prediction in predict_run(graph, accepted).items()}

    return RunState(
        mode=accepted.mode,
        escalation=chain_of(accepted),
        parallelism=task.plan.parallelism if task else None,
        agents=task.agents if task else (),
        labels=task.labels if task else (REQUEST_LABEL,),
        files=accepted.files,
        paths=task.paths_by_label if task else {},
        estimate=estimate,
        max_replans=accepted.max_replans,
        checks_answer=task is None or task.plan.check_answer,
        may_answer_directly=accepted.request is not None,
    )
