"""Carry out runs, show them while they run, and end them in order on ctrl-C.

Where a daemon owns the state folder, it runs them; otherwise an orchestrator of our own does.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, Protocol, TypeVar

from orchestrator.cli.client import DaemonRuns, answers
from orchestrator.cli.errors import Cancelled
from orchestrator.cli.interrupt import Interrupts
from orchestrator.cli.live import View
from orchestrator.cli.logs import log_to
from orchestrator.cli.settings import Settings
from orchestrator.journal import Home
from orchestrator.runs import EventUpdate, Job, Orchestrator, PlannedTask, Update

T = TypeVar("T")


class Runner(Protocol):
    """Whoever runs jobs: the daemon, or an orchestrator in this process."""

    async def submit(self, job: Job) -> str: ...

    async def resume(self, run: str) -> str: ...

    def watch(self, run: str) -> AsyncGenerator[Update, None]: ...

    async def cancel(self, run: str) -> None: ...

    async def plan(self, job: Job) -> PlannedTask: ...


Begin = Callable[[Runner], Awaitable[str]]


class Conductor:
    """Carries out one run after another, until one is cancelled."""

    def __init__(self, chosen: Settings, view: View) -> None:
        self._chosen = chosen
        self._view = view
        self.runs: list[str] = []
        self.cancelled = False
        self._loaded = False

    async def conduct(self, *begins: Begin) -> None:
        """Begin each run when the one before it has ended. Raises `Cancelled` if stopped before there was a run."""
        with Interrupts(self._view.end) as interrupts:
            await self._accompanied(self._carry_out(begins, interrupts), interrupts)

    async def plan(self, job: Job) -> PlannedTask:
        """Let the frontdoor plan a job, and run nothing. Raises `Cancelled` if stopped."""
        with Interrupts(self._view.end) as interrupts:
            return await self._accompanied(self._plan(job), interrupts)

    async def _accompanied(self, work: Coroutine[Any, Any, T], interrupts: Interrupts) -> T:
        """Return what `work` returns, with an eye on interrupts and the view kept moving meanwhile."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work)
            companions = (self._view.animate(), self._give_up(interrupts, task))
            others = [group.create_task(companion) for companion in companions]
            await asyncio.wait([task])
            for other in others:
                other.cancel()
        if task.cancelled():
            raise Cancelled
        return task.result()

    def _opened(self) -> AbstractAsyncContextManager[Runner]:
        home = self._chosen.home
        if answers(home):
            return DaemonRuns(home, self._chosen.registry_path)
        registry = self._chosen.registry()
        log_to(Home(home).logs / "orchestrator.log")
        return Orchestrator.open(home, registry)

    async def _plan(self, job: Job) -> PlannedTask:
        async with self._opened() as runner:
            return await runner.plan(job)

    async def _carry_out(self, begins: tuple[Begin, ...], interrupts: Interrupts) -> None:
        async with self._opened() as runner:
            self._loaded = True
            for begin in begins:
                run = await begin(runner)
                self.runs.append(run)
                await self._watch(runner, run, interrupts)
                if self.cancelled:
                    return

    async def _watch(self, runner: Runner, run: str, interrupts: Interrupts) -> None:
        async with asyncio.TaskGroup() as group, aclosing(runner.watch(run)) as updates:
            ear = group.create_task(self._cancel(runner, run, interrupts))
            async for update in updates:
                if isinstance(update, EventUpdate):
                    self._view.event(update.event)
                else:
                    self._view.progress(update)
            ear.cancel()

    async def _cancel(self, runner: Runner, run: str, interrupts: Interrupts) -> None:
        await interrupts.asked.wait()
        self.cancelled = True
        self._view.say("cancelling; ctrl-C again ends at once")
        await runner.cancel(run)

    async def _give_up(self, interrupts: Interrupts, work: "asyncio.Task[T]") -> None:
        """Stop the work if it is interrupted before there can be a run: models may take minutes to load."""
        await interrupts.asked.wait()
        if not self._loaded:
            work.cancel()
