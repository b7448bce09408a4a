"""Run a plan: turn each event of a run into the commands that follow from it. Pure, and the same for every replay.

The heart is `RunState.handle`: *apply the event, cancel what it cancels, dispatch what is ready, go on with the plan,
finish when all is over*. Every change of a step's state goes through `RunState._move`, which checks `TRANSITIONS`.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

from orchestrator.run.scheduler.commands import CancelAttempt, CheckAnswer, Command, ExtendPlan
from orchestrator.run.scheduler.progress import AnswerCheck, Ending, Estimate, PlanProgress, answer_directly, outcome
from orchestrator.run.scheduler.queue import ConcurrencyLimits, Rank, ReadyQueue
from orchestrator.run.scheduler.states import ACTIVE, FINAL, TRANSITIONS, IllegalTransition, State
from orchestrator.run.scheduler.step import (
    Cause,
    StepEvent,
    StepRecord,
    StepViews,
    expand_children,
    outcome_of_children,
)
from orchestrator.task.analysis import NO_PATHS, PlanAnalysis, StepGraph
from orchestrator.task.events import (
    AnswerChecked,
    AttemptCancelled,
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    CancelRequested,
    Event,
    Mode,
    ModelAwaited,
    NoteChanged,
    PlanFailed,
    PlanFinished,
    PlanningStarted,
    PlanReplaced,
    ReplanFinished,
    ReplanStarted,
    RunAccepted,
    RunBegun,
    RunFinished,
    RunStatus,
    StepExpanded,
    StepGathered,
    StepsPlanned,
    ToolCalled,
)
from orchestrator.task.failures import EscalationChain, FailureResponse, GiveUp, decide
from orchestrator.task.taskir import Agent, Parallelism, Step


class RunState:
    """The state of a run. It is built empty, and changed by events alone.

    `estimate` predicts the seconds of each step of a plan, as far as the plan is known. It only decides which step goes
    first, so it may change between a run and its replay. `labels`, `files` and `paths` are what the steps may read
    beside artifacts, as in `analyze`.
    `escalation` says which role takes over from which, and `max_replans` how often the plan may go on after a step that
    it ended with. With `may_answer_directly`, a plan that fails is replaced by one step that does the whole request.
    With `checks_answer` the answer is compared with the request before the run ends.
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
            AnswerChecked: self._on_answer_checked,
            RunFinished: self._on_finished,
        }

    def handle(self, *events: Event) -> list[Command]:
        """Apply events, one after the other, and return the commands that follow from them, in order.

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
        """Return the commands to begin with after a restart, when the journal's events were handled and their commands
        discarded.

        Attempts that had not ended run again, under the next number if they had started. This is not a retry. If their
        outputs are stored already, only the gates run again, under the same number.
        """
        self._commands = []
        self._plan.ask_again()
        self._ending.ask_again()
        self._answer.ask_again()
        for record in self._steps.values():
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
        """Cancel the steps that are to be cancelled, and those that have to be cancelled because of that."""
        while self._to_cancel:
            self._cancel(*self._to_cancel.popleft())

    def _dispatch(self) -> None:
        """Start ready steps, in the order of the queue, as long as the limits admit one."""
        while (step := self._queue.first()) is not None:
            record = self._steps[step]
            self._move(record, State.RUNNING)
            self._commands.append(record.command())

    def _go_on_with_plan(self) -> None:
        """Ask for the rest of the plan when the step that it depends on is done; if that step failed, there is none."""
        awaited = self._plan.awaited
        if awaited is None or self._ending.is_due:
            return
        state = self._steps[awaited].state
        if state is State.DONE:
            self._plan.ask()
            self._commands.append(ExtendPlan(awaited))
        elif state in FINAL:
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
            record.number, record.started = record.next_number, False
        elif to in FINAL:
            self._end(record)

    def _end(self, record: StepRecord) -> None:
        """Let the steps that wait for this one go on, or cancel them."""
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
        """Rank the whole plan anew, and add the records of the new steps."""
        for record in self._steps.values():
            record.rank = ranks[record.parent.id if record.parent else record.id]
        self._steps.update((step.id, StepRecord(step, ranks[step.id])) for step in new)
        self._unfinished += len(new)
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
            if record.started:  # the one before was lost in a restart
                self._lose(record)
                self._move(record, State.RUNNING)
            record.start(event)
            if self._queue.holders.get(record.id, record.lane) != record.lane:  # a router chose another role
                self._queue.release(record.id)
                self._queue.hold(record.id, record.lane)

    def _on_generated(self, event: AttemptGenerated) -> None:
        if record := self._subject(event):
            self._move(record, State.CHECKING)
            record.outputs = event.outputs

    def _on_done(self, event: AttemptSucceeded | StepGathered) -> None:
        if record := self._uncancelled(event):
            record.repairing = False
            self._move(record, State.DONE)

    def _on_attempt_cancelled(self, event: AttemptCancelled) -> None:
        if record := self._subject(event):
            self._end_cancelling(record)

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
        """Carry out what was decided after a failure."""
        record.take_up(decision)
        if isinstance(decision, GiveUp):
            self._fail(record, f"{record.failures[-1].failure.message} ({decision.reason})")
        else:
            self._move(record, State.READY)

    def _fail(self, record: StepRecord, reason: str) -> None:
        record.cause = Cause(record.id, reason)
        self._move(record, State.FAILED)

    def _subject(self, event: StepEvent) -> StepRecord | None:
        """Return the step that the event is about; None if it is cancelled already, so that the event has no effect.

        The event may be about an attempt that this state would have started later: a replay whose estimates differ from
        those of the run orders ready steps differently, and then the event counts.
        """
        if event.step not in self._steps:
            raise IllegalTransition(event.step, f"{event.kind}, but there is no such step")
        record = self._steps[event.step]
        if record.state is State.CANCELLED:
            return None
        if not record.expects(event):
            raise IllegalTransition(record.id, f"unexpected {event.kind}: {event}", record.state_history)
        if record.state is State.READY:
            self._move(record, State.RUNNING)
        return record

    def _uncancelled(self, event: StepEvent) -> StepRecord | None:
        """Return the step that the event is about, unless it was to be cancelled: then it is now."""
        record = self._subject(event)
        if record and record.cancelling:
            self._end_cancelling(record)
            return None
        return record

    def _end_cancelling(self, record: StepRecord) -> None:
        """End a step that was to be cancelled. What it was to repair is done already, and stays so."""
        if record.repairing:
            self._end_repair(record)
        else:
            self._move(record, State.CANCELLED)

    def _on_answer_checked(self, event: AnswerChecked) -> None:
        """Repair the answer, once, if what is doubtful in it can be written once more and no other step has read it."""
        if not self._answer.take(event):
            return
        doubts: dict[str, list[str]] = {}
        for doubt in event.doubts:
            doubts.setdefault(doubt.step, []).append(doubt.text)
        for step, texts in doubts.items():
            record = self._steps.get(step)
            if record is not None and record.can_be_repaired and not self.graph.after[step]:
                record.begin_repair(" ".join(texts))
                self._unfinished += 1
                self._answer.repair()
                self._move(record, State.READY)

    def _end_repair(self, record: StepRecord) -> None:
        """Let the earlier output of a step stand, since there will be no better one."""
        record.end_repair()
        self._move(record, State.DONE)

    def _ask_again(self, record: StepRecord) -> None:
        """Ask once more for what a step was doing when the orchestrator was restarted."""
        if record.pending:
            return
        if record.cancelling and not record.fans_out:
            self._queue.release(record.id)
            record.lost = True
            self._commands.append(CancelAttempt(record.id, record.number))
        elif record.cancelling or record.children is not None:
            self._commands.append(record.command())
        elif record.state is State.CHECKING and record.outputs:
            self._commands.append(record.check())
        else:
            self._lose(record)

    def _lose(self, record: StepRecord) -> None:
        """Put back a step whose attempt was lost in a restart."""
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
        """Go on with a step whose children have all ended."""
        if (end := outcome_of_children(record)) is None:
            self._gather(record)
        else:
            to, record.cause = end
            self._move(record, to)

    def _gather(self, record: StepRecord) -> None:
        """Ask for the parent's outputs. Limits are not checked, since the last child has just given its slot back."""
        self._queue.hold(record.id, record.lane)
        self._commands.append(record.command())

    def _on_cancel(self, event: CancelRequested) -> None:
        """Cancel the run or a step. To cancel a step that has ended already, or does not exist, is no error.

        A run whose steps were all done has an answer. It ends with that, and only what would repair it is cancelled.
        """
        if event.step is None and self._answer.has_begun:
            self._answer.stop()
            cause = Cause(None, event.reason)
            self._to_cancel.extend((record, cause) for record in self._steps.values() if record.repairing)
        elif event.step is None:
            self._stop("cancelled", event.reason)
        elif event.step in self._steps:
            self._to_cancel.append((self._steps[event.step], Cause(event.step, event.reason)))

    def _stop(self, status: Literal["failed", "cancelled"], reason: str) -> None:
        """Cancel every step, and let the run end like this, unless it has been stopped before."""
        cause = self._ending.stop(status, reason)
        self._to_cancel.extend((record, cause) for record in self._steps.values())

    def _cancel(self, record: StepRecord, cause: Cause) -> None:
        """Cancel a step now, or as soon as what it is doing has stopped."""
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
        """Take note that the run is over. Steps that have not ended in this state were cancelled.

        A step of a failed run that would be tried again here was given up by the rules of an earlier version.
        """
        cause = self._ending.finish(event)
        self._end_cancelled()
        if event.status == "failed":
            self._fail_given_up()
        self._to_cancel.extend((record, cause) for record in self._steps.values())
        self._settle()
        self._end_cancelled()
        self._commands.clear()

    def _fail_given_up(self) -> None:
        for record in self._steps.values():
            asked = record.state is State.READY or (record.state is State.RUNNING and not record.started)
            if asked and record.failures and not record.cancelling:
                if record.state is State.READY:
                    self._move(record, State.RUNNING)
                self._fail(record, record.failures[-1].failure.message)

    def _end_cancelled(self) -> None:
        """End what was to be cancelled, without waiting for it to stop."""
        for record in reversed(self._steps.values()):  # children before their parents
            if record.cancelling:
                self._end_cancelling(record)
        self._settle()

    def check(self, steps: Sequence[Step]) -> None:
        """Check whether these steps may be planned next, and change nothing. Raises InvalidTask.

        The analysis is kept, so that StepsPlanned with these steps need not repeat it.
        """
        self._plan.check(steps)

    def admits(self, step: str, role: str) -> bool:
        """Return whether the limits allow this step, which is asked to start, to be done by `role`."""
        record = self._steps[step]
        return role == record.role or self._queue.admits_instead(record.lane, role)

    @property
    def graph(self) -> StepGraph:
        """The plan as far as it is known. Children of `foreach` steps are not in it."""
        return self._plan.graph

    @property
    def growing(self) -> bool:
        """Whether more steps may come."""
        return self._plan.is_open and not self._ending.finished

    @property
    def is_answered(self) -> bool:
        """Whether the run will be done whatever happens: all of its steps were, and its answer is only checked now."""
        return self._answer.has_begun

    @property
    def steps(self) -> StepViews:
        """Every step and child, in the order in which they came to be. A view is made when it is asked for."""
        return StepViews(self._steps)

    @property
    def status(self) -> RunStatus:
        """The status of the run, as reports have it."""
        if self._ending.finished:
            return self._ending.finished.status
        if self._steps:
            return "running"
        return "planning" if self._planning else "queued"

    def _drain(self) -> list[Command]:
        commands, self._commands = self._commands, []
        return commands
