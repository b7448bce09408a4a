"""Run one task: events are journaled, the scheduler turns them into commands, and these are carried out.

The heart is `drive`. Every command is carried out by a task of its own that ends in exactly one event, which goes into
the inbox, and so round again until the run has finished.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import structlog

from orchestrator.events import (
    AttemptCancelled,
    AttemptFailed,
    AttemptStarted,
    CancelRequested,
    Event,
    Failure,
    FailureKind,
    PlanFailed,
    PlanningStarted,
    PromptDigests,
    ReplanFinished,
    ReplanStarted,
    RunBegun,
    RunFinished,
)
from orchestrator.journal import Journal
from orchestrator.routing import Route
from orchestrator.runs.clock import Clock
from orchestrator.runs.updates import Broadcast, EventUpdate
from orchestrator.scheduler import (
    CancelAttempt,
    Command,
    ExpandStep,
    ExtendPlan,
    FinishRun,
    GatherStep,
    RunState,
    StartAttempt,
)

log = structlog.get_logger(__name__)


class Effects(Protocol):
    """What the loop can have done. Each call ends in one event; `emit` takes events on the way to it."""

    def note(self, event: Event) -> None:
        """Take note of an event that is in the journal."""

    def route(self, command: StartAttempt) -> Route:
        """Choose who does an attempt."""

    def prompts(self, role: str, persona: str | None) -> PromptDigests:
        """Return the versions of the prompts that an attempt by a role with a persona uses."""

    async def attempt(self, command: StartAttempt, route: Route, emit: Callable[[Event], None]) -> Event:
        """Carry out one attempt."""

    async def expand(self, command: ExpandStep) -> Event:
        """Read the list of a `foreach` step."""

    async def gather(self, command: GatherStep) -> Event:
        """Join the outputs of a `foreach` step's children."""

    def planning(self) -> PlanningStarted | None:
        """Return the event that the plan begins with; None where it began before a restart."""

    async def plan(self, emit: Callable[[Event], None]) -> Event:
        """Make a plan of the request, emitting steps as they come."""

    def replanning(self, command: ExtendPlan) -> ReplanStarted:
        """Return the event that the rest of the plan begins with."""

    async def extend(self, command: ExtendPlan, emit: Callable[[Event], None]) -> Event:
        """Make the rest of the plan, emitting steps as they come."""


@dataclass(frozen=True, slots=True)
class Due:
    """A command whose delay is over."""

    command: StartAttempt


class RunLoop:
    """One run in progress. `state` may have been replayed from the journal."""

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
        self._at_work: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._cancelled: set[tuple[str, int]] = set()
        self._planning: asyncio.Task[None] | None = None

    def emit(self, event: Event) -> None:
        """Put an event into the inbox."""
        self._inbox.put_nowait(event)

    async def drive(
        self,
        outstanding: Sequence[Command] = (),
        *,
        first: RunBegun | CancelRequested | None = None,
        plan: bool = False,
    ) -> None:
        """Run until the run has finished. `outstanding` commands and the need for a `plan` come from a replay.

        What came `first`, and led to what is outstanding, is journaled with it.
        """
        events: list[Event] = [] if first is None else [first]
        if plan and (begins := self._effects.planning()) is not None:
            events.append(begins)
            outstanding = [*outstanding, *self._state.handle(begins)]
        async with asyncio.TaskGroup() as tasks:
            finished = await self._act(outstanding, events, tasks)
            if plan and not finished:
                self._planning = tasks.create_task(self._plan(self._effects.plan(self.emit), self._no_plan))
            while not finished:
                items = await self._take()
                events = [item for item in items if not isinstance(item, Due)]
                due = [item.command for item in items if isinstance(item, Due) and not self._was_cancelled(item)]
                finished = await self._act([*due, *self._state.handle(*events)], events, tasks)
            if self._planning is not None:
                self._planning.cancel()  # a run that was cancelled ends before its plan does

    async def _take(self) -> list[Event | Due]:
        """Return everything that is in the inbox, at least one item."""
        items = [await self._inbox.get()]
        while not self._inbox.empty():
            items.append(self._inbox.get_nowait())
        return items

    async def _act(self, commands: Sequence[Command], events: list[Event], tasks: asyncio.TaskGroup) -> bool:
        """Journal what has happened and what begins now, in one commit; then begin it. Return whether it is over."""
        starting = [c for c in commands if isinstance(c, StartAttempt) and not c.delay_seconds]
        routes = {c.step.id: self._effects.route(c) for c in starting}
        begun: list[Event] = [self._started(c, routes[c.step.id]) for c in starting]
        begun += [self._effects.replanning(c) for c in commands if isinstance(c, ExtendPlan)]
        ended = [
            RunFinished(at=self._clock.now(), status=c.status, error=c.error)
            for c in commands
            if isinstance(c, FinishRun)
        ]
        self._state.handle(*begun, *ended)
        happened = [*events, *begun, *ended]
        await self._record(happened)
        self._cancelled.update((c.step, c.number) for c in commands if isinstance(c, CancelAttempt))
        for command in commands:
            self._begin(command, routes, tasks)
        for event in happened:  # watchers come last: what begins does not wait until all of them are told
            self._broadcast.publish(EventUpdate(event))
        return bool(ended)

    async def _record(self, events: Sequence[Event]) -> None:
        if events:
            await self._journal.append(self.run, events)
        for event in events:
            self._effects.note(event)

    def _started(self, command: StartAttempt, route: Route) -> AttemptStarted:
        return AttemptStarted(
            at=self._clock.now(),
            step=command.step.id,
            number=command.number,
            role=route.role,
            persona=route.persona,
            model=route.model,
            reason=f"{command.reason}; {route.reason}",
            propensity=route.propensity,
            prompts=self._effects.prompts(route.role, route.persona),
        )

    def _begin(self, command: Command, routes: Mapping[str, Route], tasks: asyncio.TaskGroup) -> None:
        match command:
            case StartAttempt(step, number) if (step.id, number) in self._cancelled:
                pass  # both came at once; the answer to CancelAttempt is the answer to this
            case StartAttempt(step, number):
                work = (
                    self._wait(command)
                    if command.delay_seconds
                    else self._effects.attempt(command, routes[step.id], self.emit)
                )
                self._at_work[step.id, number] = tasks.create_task(self._carry(step.id, number, work))
            case ExpandStep(step):
                tasks.create_task(self._carry(step.id, 0, self._effects.expand(command)))
            case GatherStep(step):
                tasks.create_task(self._carry(step.id, 0, self._effects.gather(command)))
            case ExtendPlan():
                rest = self._effects.extend(command, self.emit)
                self._planning = tasks.create_task(self._plan(rest, partial(self._no_rest, command)))
            case CancelAttempt(step_id, number):
                self._cancel(step_id, number)
            case FinishRun():
                pass  # RunFinished is in the journal, and the loop ends

    async def _wait(self, command: StartAttempt) -> Due:
        await asyncio.sleep(command.delay_seconds)
        return Due(replace(command, delay_seconds=0.0))

    def _cancel(self, step: str, number: int) -> None:
        task = self._at_work.get((step, number))
        if task is None:
            self.emit(AttemptCancelled(at=self._clock.now(), step=step, number=number))
        else:
            task.cancel()

    def _was_cancelled(self, due: Due) -> bool:
        return (due.command.step.id, due.command.number) in self._cancelled

    async def _carry(self, step: str, number: int, work: Awaitable[Event | Due]) -> None:
        """Carry out one command and put what came of it into the inbox, whatever that is."""
        structlog.contextvars.bind_contextvars(step=step, attempt=number)
        try:
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
        self._inbox.put_nowait(outcome)

    async def _plan(self, work: Awaitable[Event], broken: Callable[[str], Event]) -> None:
        """Have the plan or its rest made, and put what came of it into the inbox, whatever that is."""
        try:
            outcome = await work
        except Exception as error:
            log.exception("planning broke down", run=self.run)
            outcome = broken(f"internal error: {error!r}")
        self.emit(outcome)

    def _no_plan(self, reason: str) -> PlanFailed:
        return PlanFailed(at=self._clock.now(), failure=Failure(FailureKind.INFRASTRUCTURE, reason))

    def _no_rest(self, command: ExtendPlan, reason: str) -> ReplanFinished:
        return ReplanFinished(at=self._clock.now(), after=command.after, outcome="stopped", reason=reason)
