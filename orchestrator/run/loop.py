"""Run one task: events are journaled, the scheduler turns them into commands, and these are carried out.

The heart is `RunLoop.drive`. Each command is carried out by its own task, which ends in exactly one event. The event
goes into the inbox, from which the scheduler gets it, until the run has finished.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

import structlog

from orchestrator.errors import Problem
from orchestrator.run.journal.journal import Journal
from orchestrator.run.routing import NO_MODEL, Decision, DecisionContext, fall_back_to_rules
from orchestrator.run.scheduler.commands import (
    AnswerDirectly,
    CancelAttempt,
    CheckAnswer,
    CheckOutputs,
    Command,
    ExpandStep,
    ExtendPlan,
    FinishRun,
    GatherStep,
    HurryAttempt,
    RestartAttempt,
    StartAttempt,
)
from orchestrator.run.scheduler.run import RunState
from orchestrator.run.state_folder import Clock
from orchestrator.run.updates import Broadcast, EventUpdate
from orchestrator.task.events import (
    AnswerChecked,
    AttemptCancelled,
    AttemptFailed,
    AttemptStarted,
    CancelRequested,
    Event,
    Failure,
    FailureKind,
    PlanFailed,
    PlanningStarted,
    PlanReplaced,
    PromptDigests,
    ReplanFinished,
    ReplanStarted,
    RunBegun,
    RunFinished,
)
from orchestrator.task.prediction import kind_of
from orchestrator.task.stages import Urgency, hurried_by

# How long the loop waits for the disk to return the sizes of inputs, on which a choice may depend. It never waits for a
# router: an attempt that is chosen later starts later, in its own commit.
SIZES_SECONDS: Final = 0.01

log = structlog.get_logger(__name__)


class Effects(Protocol):
    """Carries out what the loop asks for. Each command ends in one event; `emit` takes events that come before it."""

    def note(self, event: Event) -> None:
        """Apply an event. Nothing that follows from it starts before the event is in the journal."""

    async def context(self, command: StartAttempt) -> DecisionContext:
        """Return what the router's choice for an attempt may depend on."""

    def prompts(self, role: str, persona: str | None, model: str) -> PromptDigests:
        """Return the digests of the prompts of an attempt."""

    async def choose(self, context: DecisionContext) -> Decision:
        """Choose the role, persona and model of an attempt."""

    async def attempt(self, command: StartAttempt, decision: Decision, emit: Callable[[Event], None]) -> Event:
        """Carry out one attempt."""

    async def check(self, command: CheckOutputs, emit: Callable[[Event], None]) -> Event:
        """Let the gates check what an attempt made before a restart."""

    async def expand(self, command: ExpandStep) -> Event:
        """Read the list of a `foreach` step."""

    async def gather(self, command: GatherStep) -> Event:
        """Join the outputs of a `foreach` step's children."""

    def planning(self) -> PlanningStarted | None:
        """Return the event that the plan starts with; None if planning started before a restart."""

    async def plan(self, emit: Callable[[Event], None]) -> Event:
        """Plan the request, and emit its steps as they come."""

    def replanning(self, command: ExtendPlan) -> ReplanStarted:
        """Return the event that the rest of the plan starts with."""

    async def extend(self, command: ExtendPlan, emit: Callable[[Event], None]) -> Event:
        """Plan the rest, and emit its steps as they come."""

    def replace(self, command: AnswerDirectly) -> PlanReplaced:
        """Return the step that replaces a failed plan."""

    async def check_answer(self) -> AnswerChecked:
        """Compare the answer with the request."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A router's choice for an attempt, and its context; None if the context could not be found out."""

    decision: Decision
    context: DecisionContext | None


@dataclass(frozen=True, slots=True)
class Due:
    # A command whose delay is over, or whose attempt the router has chosen.
    command: Command
    choice: Choice | None = None


AttemptKey = tuple[str, int]  # step id, number of the attempt


class RunLoop:
    """Drives one run. `state` may have been replayed from the journal."""

    def __init__(
        self, run: str, state: RunState, effects: Effects, journal: Journal, clock: Clock, broadcast: Broadcast
    ) -> None:
        self.run = run
        self._state = state
        self._effects = effects
        self._journal = journal
        self._clock = clock
        self._broadcast = broadcast
        self._inbox: asyncio.Queue[Event | Due] = asyncio.Queue()
        self._at_work: dict[AttemptKey, asyncio.Task[None]] = {}
        self._urgency: defaultdict[AttemptKey, Urgency] = defaultdict(Urgency)
        self._cancelled: set[AttemptKey] = set()
        self._planning: asyncio.Task[None] | None = None

    def emit(self, event: Event) -> None:
        self._inbox.put_nowait(event)

    async def drive(
        self,
        outstanding: Sequence[Command] = (),
        *,
        first: RunBegun | CancelRequested | None = None,
        plan: bool = False,
    ) -> None:
        """Drive the run until it has finished.

        `outstanding` are the commands to start with, and `plan` says whether the request is still to be planned; both
        come from the replay of the journal. The event `first` is journaled before they are carried out.
        """
        events: list[Event] = [] if first is None else [first]
        if plan and (begins := self._effects.planning()) is not None:
            events.append(begins)
            outstanding = [*outstanding, *self._state.handle(begins)]
        async with asyncio.TaskGroup() as tasks:
            finished = await self._act([Due(command) for command in outstanding], events, tasks)
            if plan and not finished:
                self._planning = tasks.create_task(self._plan(self._effects.plan(self.emit), self._no_plan))
            while not finished:
                items = await self._take()
                events = [item for item in items if not isinstance(item, Due)]
                due = [item for item in items if isinstance(item, Due) and not self._was_cancelled(item.command)]
                due += [Due(command) for command in self._state.handle(*events)]
                finished = await self._act(due, events, tasks)
            if self._planning is not None:
                self._planning.cancel()  # a run that was cancelled ends before its plan does

    async def _take(self) -> list[Event | Due]:
        # Everything in the inbox, at least one item.
        items = [await self._inbox.get()]
        while not self._inbox.empty():
            items.append(self._inbox.get_nowait())
        return items

    async def _act(self, due: Sequence[Due], events: list[Event], tasks: asyncio.TaskGroup) -> bool:
        """Journal what has happened and what starts, in one commit, then start it. Return whether the run is over."""
        commands = [item.command for item in due]
        for event in events:  # a choice may depend on them; nothing that follows from them has started
            self._effects.note(event)
        now = self._clock.now()  # events that come into the inbox from here on are later than what starts
        replanned = [self._effects.replanning(c) for c in commands if isinstance(c, ExtendPlan)]
        ended = [
            RunFinished(at=now, status=c.status, error=c.error, doubt=c.doubt)
            for c in commands
            if isinstance(c, FinishRun)
        ]
        choices = await self._choices(due, tasks)
        start_events = self._start(commands, choices, now)
        replaced = [self._effects.replace(c) for c in commands if isinstance(c, AnswerDirectly)]
        for event in replaced:
            self._effects.note(event)
        for following in self._state.handle(*replanned, *replaced, *ended):
            self._inbox.put_nowait(Due(following))
        happened: list[Event] = [*events, *start_events, *replanned, *replaced, *ended]
        if happened:
            await self._journal.append(self.run, happened)
        self._cancelled.update((c.step, c.number) for c in commands if isinstance(c, CancelAttempt | RestartAttempt))
        for command in commands:
            self._begin(command, choices, tasks)
        for event in happened:  # only now, so that what starts does not wait for the watchers
            self._broadcast.publish(EventUpdate(event))
        return bool(ended)

    async def _choices(self, due: Sequence[Due], tasks: asyncio.TaskGroup) -> dict[AttemptKey, Choice]:
        choices: dict[AttemptKey, Choice] = {}
        requested: dict[AttemptKey, tuple[StartAttempt, asyncio.Task[Choice]]] = {}
        reading: list[asyncio.Future[None]] = []
        for item in due:
            match item.command:
                case StartAttempt(step, number) as command if not command.delay_seconds:
                    if item.choice is not None:
                        choices[step.id, number] = item.choice
                    else:
                        reading.append(sizes := asyncio.get_running_loop().create_future())
                        requested[step.id, number] = command, tasks.create_task(self._choose(command, sizes))
        if requested:
            # A router that does not wait, such as the rules, is done within a turn of the event loop, so that what has
            # happened and what starts share one commit.
            await asyncio.sleep(0)
            if unread := [sizes for sizes in reading if not sizes.done()]:
                await asyncio.wait(unread, timeout=SIZES_SECONDS)
        for attempt, (command, choice) in requested.items():
            if choice.done():
                choices[attempt] = choice.result()
            else:
                work = self._carry(*attempt, self._when_chosen(command, choice))
                self._at_work[attempt] = tasks.create_task(work)
        return choices

    async def _choose(self, command: StartAttempt, sizes: "asyncio.Future[None]") -> Choice:
        # `sizes` is done when only the router has to be waited for.
        context: DecisionContext | None = None
        try:
            try:
                context = await self._effects.context(command)
            finally:
                if not sizes.done():
                    sizes.set_result(None)
            return Choice(await self._effects.choose(context), context)
        except Exception as error:
            # The attempt is to fail, and its failure says why.
            log.exception("a choice broke down", run=self.run, step=command.step.id, attempt=command.number)
            problem = Problem(f"step {command.step.id}", f"no role could be chosen for it: {error!r}")
            decision = Decision(
                role=command.role, persona=command.step.persona, model=NO_MODEL, reason=problem.what, problem=problem
            )
            return Choice(decision, context)

    async def _when_chosen(self, command: StartAttempt, choice: "asyncio.Task[Choice]") -> Due:
        return Due(command, await choice)

    def _start(self, commands: Sequence[Command], choices: dict[AttemptKey, Choice], now: float) -> list[Event]:
        start_events: list[Event] = []
        for command in commands:
            if not isinstance(command, StartAttempt) or (command.step.id, command.number) not in choices:
                continue
            choice = choices[command.step.id, command.number]
            role = choice.decision.role
            if choice.context is not None and not self._state.admits(command.step.id, role):
                # A router cannot choose a role without a free slot.
                ruling = fall_back_to_rules(
                    choice.context, f"the router chose {role}, of which no more may run at once"
                )
                choice = choices[command.step.id, command.number] = replace(choice, decision=ruling)
            prompts = self._effects.prompts(choice.decision.role, choice.decision.persona, choice.decision.model)
            start_events.append(started := _started(command, choice, prompts, now))
            for freed in self._state.handle(started):  # the role that was asked for may have a free slot now
                self._inbox.put_nowait(Due(freed))
        return start_events

    def _begin(self, command: Command, choices: Mapping[AttemptKey, Choice], tasks: asyncio.TaskGroup) -> None:
        match command:
            case StartAttempt():
                self._begin_attempt(command, choices, tasks)
            case CheckOutputs(step, number):
                check = self._carry(step.id, number, self._effects.check(command, self.emit))
                self._at_work[step.id, number] = tasks.create_task(check)
            case ExpandStep(step):
                tasks.create_task(self._carry(step.id, 0, self._effects.expand(command)))
            case GatherStep(step):
                tasks.create_task(self._carry(step.id, 0, self._effects.gather(command)))
            case ExtendPlan():
                rest = self._effects.extend(command, self.emit)
                self._planning = tasks.create_task(self._plan(rest, partial(self._no_rest, command)))
            case CheckAnswer():
                tasks.create_task(self._check_answer())
            case CancelAttempt() | RestartAttempt() | HurryAttempt():
                self._steer(command)
            case AnswerDirectly() | FinishRun():
                pass  # PlanReplaced or RunFinished is in the journal already

    def _begin_attempt(
        self, command: StartAttempt, choices: Mapping[AttemptKey, Choice], tasks: asyncio.TaskGroup
    ) -> None:
        step, number = command.step.id, command.number
        if (step, number) in self._cancelled:
            return  # it was cancelled at the same time, and AttemptCancelled answers both commands
        work: Awaitable[Event | Due]
        if command.delay_seconds:
            work = self._wait(command)
        elif (step, number) in choices:
            work = self._effects.attempt(command, choices[step, number].decision, self.emit)
        else:
            return  # it comes back when the router has chosen
        self._at_work[step, number] = tasks.create_task(self._carry(step, number, work))

    async def _wait(self, command: StartAttempt) -> Due:
        await asyncio.sleep(command.delay_seconds)
        return Due(replace(command, delay_seconds=0.0))

    def _steer(self, command: CancelAttempt | RestartAttempt | HurryAttempt) -> None:
        attempt = command.step, command.number
        task = self._at_work.get(attempt)
        if task is None:
            # The attempt's own outcome is in the inbox, or there never was such an attempt.
            if isinstance(command, CancelAttempt):
                self.emit(AttemptCancelled(at=self._clock.now(), step=command.step, number=command.number))
        elif isinstance(command, HurryAttempt):
            self._urgency[attempt].hurry()
        else:
            task.cancel()

    def _was_cancelled(self, command: Command) -> bool:
        return isinstance(command, StartAttempt) and (command.step.id, command.number) in self._cancelled

    async def _carry(self, step: str, number: int, work: Awaitable[Event | Due]) -> None:
        structlog.contextvars.bind_contextvars(step=step, attempt=number)
        try:
            with hurried_by(self._urgency[step, number]):
                outcome = await work
        except asyncio.CancelledError:
            if (step, number) not in self._cancelled:
                raise
            outcome = AttemptCancelled(at=self._clock.now(), step=step, number=number)
        except Exception as error:
            log.exception("an attempt broke down", run=self.run, step=step, attempt=number)
            failure = Failure(FailureKind.INFRASTRUCTURE, f"internal error: {error!r}")
            outcome = AttemptFailed(at=self._clock.now(), step=step, number=number, failure=failure)
        self._at_work.pop((step, number), None)
        if not isinstance(outcome, Due):  # else the attempt is still to start
            self._urgency.pop((step, number), None)
        self._inbox.put_nowait(outcome)

    async def _plan(self, work: Awaitable[Event], broken: Callable[[str], Event]) -> None:
        try:
            outcome = await work
        except Exception as error:
            log.exception("planning broke down", run=self.run)
            outcome = broken(f"internal error: {error!r}")
        self.emit(outcome)

    async def _check_answer(self) -> None:
        try:
            outcome = await self._effects.check_answer()
        except Exception:
            log.exception("the check of the answer broke down", run=self.run)
            outcome = AnswerChecked(at=self._clock.now())  # without doubts
        self.emit(outcome)

    def _no_plan(self, reason: str) -> PlanFailed:
        return PlanFailed(at=self._clock.now(), failure=Failure(FailureKind.INFRASTRUCTURE, reason))

    def _no_rest(self, command: ExtendPlan, reason: str) -> ReplanFinished:
        return ReplanFinished(at=self._clock.now(), after=command.after, outcome="stopped", reason=reason)


def _started(command: StartAttempt, choice: Choice, prompts: PromptDigests, now: float) -> AttemptStarted:
    decision, context = choice.decision, choice.context
    return AttemptStarted(
        at=now,
        step=command.step.id,
        number=command.number,
        role=decision.role,
        persona=decision.persona,
        model=decision.model,
        reason=f"{command.reason}; {decision.reason}",
        propensity=decision.propensity,
        unforced=decision.unforced,
        candidates=decision.candidates,
        router=decision.router,
        problem=str(decision.problem) if decision.problem is not None else "",
        inputs=context.inputs if context is not None else (),
        slack=command.slack,
        resident=tuple(sorted(context.resident)) if context is not None else (),
        step_kind=kind_of(command.step),
        prompts=prompts,
        thinking=decision.thinking,
        advice=decision.advice,
    )
