"""Put everything together: one state folder, one pool of models, and the runs in progress."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog

from orchestrator.daemon.clock import Clock
from orchestrator.daemon.effects import RunEffects, Services
from orchestrator.daemon.job import Job, check_job, known_rates, rungs
from orchestrator.daemon.loop import RunLoop
from orchestrator.daemon.planning import plan_request
from orchestrator.daemon.replay import accepted_in, fresh_state
from orchestrator.daemon.updates import Broadcast, EventUpdate, Update
from orchestrator.errors import InputError, Problem
from orchestrator.events import (
    CancelRequested,
    Event,
    PlanFailed,
    PlanFinished,
    RunAccepted,
    RunFinished,
    StepsPlanned,
)
from orchestrator.frontdoor import REQUEST_LABEL, make_plan
from orchestrator.journal import Journal
from orchestrator.pool import Pool
from orchestrator.scheduler import RunState
from orchestrator.taskir import Plan, Step, TaskInput, TaskIR
from registry import Registry

log = structlog.get_logger(__name__)


class Orchestrator:
    """Runs jobs. An async context manager: inside it the state folder is ours and engines run; after it, neither.

    Runs that have not ended when it closes are interrupted: `resume` goes on with them.
    """

    def __init__(self, home: Path, registry: Registry) -> None:
        self._home = home
        self._registry = registry
        self._clock = Clock()
        self._stack = AsyncExitStack()
        self._loops: dict[str, RunLoop] = {}
        self._broadcasts: dict[str, Broadcast] = {}

    @classmethod
    def open(cls, home: Path, registry: Registry) -> Self:
        """Return an orchestrator to be entered, which raises JournalError, as when another process has the folder."""
        return cls(home, registry)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            journal = stack.enter_context(Journal.open(self._home))
            pool = await stack.enter_async_context(Pool(self._registry, journal.home.logs))
            self._tasks = await stack.enter_async_context(asyncio.TaskGroup())
            self._driving: set[asyncio.Task[None]] = set()
            stack.callback(self._interrupt)
            self._services = Services(self._registry, pool, journal, self._clock)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def submit(self, job: Job) -> str:
        """Accept a job and return the id of its run, once it is durable. Raises InputError."""
        files = await asyncio.to_thread(check_job, job, self._registry)
        accepted = RunAccepted(
            at=self._clock.now(),
            run=time.strftime("%Y%m%d-%H%M%S-") + secrets.token_hex(3),
            mode=job.mode,
            request=job.request,
            task=job.task,
            directory=None if job.directory is None else str(job.directory.absolute()),
            files=files,
            rungs=rungs(self._registry),
            rates=known_rates(self._services.journal),
        )
        events: list[Event] = [accepted]
        if job.task is not None:
            events += [
                StepsPlanned(at=accepted.at, steps=job.task.plan.steps),
                PlanFinished(at=accepted.at, origin="taskir"),
            ]
        await self._services.journal.append(accepted.run, events)
        self._begin(events)
        return accepted.run

    async def resume(self, run: str) -> str:
        """Go on with an interrupted run. Raises UnknownRun, and InputError for a run that has ended."""
        events = [event for _, event in self._services.journal.events(run)]
        if isinstance(events[-1], RunFinished):
            raise InputError(Problem(f"run {run}", f"has ended: {events[-1].status}", "a run that was interrupted"))
        if run not in self._loops:
            self._begin(events)
        return run

    def watch(self, run: str) -> AsyncIterator[Update]:
        """Yield what has happened to a run of this orchestrator, and then what happens, until it has ended."""
        return self._broadcasts[run].watch()

    async def cancel(self, run: str, step: str | None = None) -> None:
        """Ask for a run, or one step and all that depends on it, to be cancelled. Harmless when it has ended."""
        if run in self._loops:
            self._loops[run].emit(CancelRequested(at=self._clock.now(), step=step))

    async def plan(self, job: Job) -> TaskIR:
        """Return the plan of a request as a task that can be submitted. Nothing is journaled, nothing runs.

        Raises InputError, and PlanError when the frontdoor's model cannot be asked.
        """
        files = await asyncio.to_thread(check_job, job, self._registry)
        request, steps = job.request or "", list[Step]()
        await make_plan(plan_request(request, files, self._registry), self._services.pool.generate, steps.append)
        given = (TaskInput(type="text", label=REQUEST_LABEL, value=request),)
        return TaskIR(objective=request, inputs=given, plan=Plan(steps=tuple(steps)))

    def _begin(self, events: list[Event]) -> None:
        """Drive a run on from where its journaled events end."""
        accepted = accepted_in(events)
        state, broadcast = fresh_state(accepted), Broadcast()
        effects = RunEffects(accepted, state, self._services, broadcast)
        state.handle(*events)
        for event in events:
            effects.note(event)
            broadcast.publish(EventUpdate(event))
        unplanned = not any(isinstance(event, PlanFinished | PlanFailed) for event in events)
        loop = RunLoop(accepted.run, state, effects, self._services.journal, self._clock, broadcast)
        self._loops[accepted.run], self._broadcasts[accepted.run] = loop, broadcast
        task = self._tasks.create_task(self._drive(loop, state, plan=unplanned))
        self._driving.add(task)
        task.add_done_callback(self._driving.discard)

    async def _drive(self, loop: RunLoop, state: RunState, *, plan: bool) -> None:
        await loop.drive(state.resume(), plan=plan)
        del self._loops[loop.run]

    def _interrupt(self) -> None:
        for task in self._driving:
            task.cancel()
