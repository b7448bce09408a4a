"""Put everything together: one state folder, one pool of models, and the runs in progress."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Collection, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import structlog

from orchestrator.daemon.clock import Clock
from orchestrator.daemon.effects import RunEffects, Services
from orchestrator.daemon.job import Job, check_job, known_rates, rungs
from orchestrator.daemon.loop import RunLoop
from orchestrator.daemon.planning import PlannedTask, plan_request, planned_task
from orchestrator.daemon.reload import follow
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
from orchestrator.frontdoor import PlannedStep, make_plan
from orchestrator.journal import Journal
from orchestrator.pool import Pool
from orchestrator.scheduler import RunState
from orchestrator.steps.generate import Models
from registry import Registry
from registry.watch import Reloader, WatchStatus

log = structlog.get_logger(__name__)


class Orchestrator:
    """Runs jobs. An async context manager: inside it the state folder is ours and engines run; after it, neither.

    Runs that have not ended when it closes are interrupted: `resume` goes on with them. Changes of the registry's files
    are taken up meanwhile, as far as they are valid.
    """

    def __init__(self, home: Path, registry: Registry) -> None:
        self._home = home
        self._registry = registry
        self._reloader = Reloader(registry)
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
            home = journal.home
            self._pool = pool = await stack.enter_async_context(
                Pool(self._registry, home.logs, footprints=home.footprints, curves=home.curves)
            )
            self._tasks = await stack.enter_async_context(asyncio.TaskGroup())
            self._driving: set[asyncio.Task[None]] = set()
            stack.callback(self._interrupt)
            self._services = Services(self._registry, Models(pool.count, pool.generate), journal, self._clock)
            self._drive_on(follow(self._reloader, self._adopt))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    @property
    def registry_status(self) -> WatchStatus:
        """What of the registry's files is not in force, and why."""
        return self._reloader.status

    async def submit(self, job: Job) -> str:
        """Accept a job and return the id of its run, once it is durable. Raises InputError."""
        registry = self._registry
        files = await asyncio.to_thread(check_job, job, registry)
        accepted = RunAccepted(
            at=self._clock.now(),
            run=time.strftime("%Y%m%d-%H%M%S-") + secrets.token_hex(3),
            mode=job.mode,
            request=job.request,
            task=job.task,
            directory=None if job.directory is None else str(job.directory.absolute()),
            files=files,
            rungs=rungs(registry),
            rates=known_rates(self._services.journal),
            max_replans=registry.defaults.max_replans if job.task is None else 0,
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

    async def plan(self, job: Job) -> PlannedTask:
        """Return the plan of a request as a task that can be submitted. Nothing is journaled, nothing runs.

        Of a plan that hangs on what a step of it finds, that is the part up to this step.

        Raises InputError, and PlanError when the frontdoor's model cannot be asked.
        """
        registry = self._registry
        files = await asyncio.to_thread(check_job, job, registry)
        request, made = job.request or "", list[PlannedStep]()
        asked = plan_request(request, files, registry, registry.defaults.max_replans)
        planned = await make_plan(asked, self._services.models.generate, made.append)
        goes_on_after = planned.goes_on_after if asked.replans else None
        return planned_task(request, [one.step for one in made], goes_on_after)

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
        self._drive_on(self._drive(loop, state, plan=unplanned))

    def _drive_on(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something go on until it ends or this closes."""
        task = self._tasks.create_task(work)
        self._driving.add(task)
        task.add_done_callback(self._driving.discard)

    def _adopt(self, registry: Registry, rewritten: Collection[Path]) -> None:
        """Go by another version of the registry. Runs in progress may name what is no longer in it."""
        self._registry = registry
        self._services.registry = registry.beside(self._services.registry)
        self._pool.adopt(registry, rewritten)

    async def _drive(self, loop: RunLoop, state: RunState, *, plan: bool) -> None:
        await loop.drive(state.resume(), plan=plan)
        del self._loops[loop.run]

    def _interrupt(self) -> None:
        for task in self._driving:
            task.cancel()
