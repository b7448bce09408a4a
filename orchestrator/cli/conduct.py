"""Carry out runs with an orchestrator of our own, show them while they run, and end them in order on ctrl-C."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.cli.errors import Cancelled
from orchestrator.cli.interrupt import Interrupts
from orchestrator.cli.live import View
from orchestrator.cli.logs import log_to
from orchestrator.daemon import EventUpdate, Job, Orchestrator, PlannedTask
from orchestrator.journal import Home
from registry import Registry

T = TypeVar("T")
Begin = Callable[[Orchestrator], Awaitable[str]]


class Conductor:
    """Carries out one run after another, until one is cancelled."""

    def __init__(self, home: Path, registry: Registry, view: View) -> None:
        log_to(Home(home).logs / "orchestrator.log")
        self._home = home
        self._registry = registry
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

    async def _plan(self, job: Job) -> PlannedTask:
        async with Orchestrator.open(self._home, self._registry) as orchestrator:
            return await orchestrator.plan(job)

    async def _carry_out(self, begins: tuple[Begin, ...], interrupts: Interrupts) -> None:
        async with Orchestrator.open(self._home, self._registry) as orchestrator:
            self._loaded = True
            for begin in begins:
                run = await begin(orchestrator)
                self.runs.append(run)
                await self._watch(orchestrator, run, interrupts)
                if self.cancelled:
                    return

    async def _watch(self, orchestrator: Orchestrator, run: str, interrupts: Interrupts) -> None:
        async with asyncio.TaskGroup() as group:
            ear = group.create_task(self._cancel(orchestrator, run, interrupts))
            async for update in orchestrator.watch(run):
                if isinstance(update, EventUpdate):
                    self._view.event(update.event)
                else:
                    self._view.progress(update)
            ear.cancel()

    async def _cancel(self, orchestrator: Orchestrator, run: str, interrupts: Interrupts) -> None:
        await interrupts.asked.wait()
        self.cancelled = True
        self._view.say("cancelling; ctrl-C again ends at once")
        await orchestrator.cancel(run)

    async def _give_up(self, interrupts: Interrupts, work: "asyncio.Task[T]") -> None:
        """Stop the work if it is interrupted before there can be a run: models may take minutes to load."""
        await interrupts.asked.wait()
        if not self._loaded:
            work.cancel()
