"""Have runs carried out, show them while they run, and end them in order on ctrl-C."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from orchestrator.cli.backend import Backend, backend
from orchestrator.cli.errors import Cancelled
from orchestrator.cli.interrupt import Interrupts
from orchestrator.cli.live import View
from orchestrator.cli.settings import Settings
from orchestrator.runs import EventUpdate, Job, PlannedTask

T = TypeVar("T")


Begin = Callable[[Backend], Awaitable[str]]


class Conductor:
    """Carries out one run after another, until one is cancelled."""

    def __init__(self, chosen: Settings, view: View) -> None:
        self._chosen = chosen
        self._view = view
        self.runs: list[str] = []
        self.cancelled = False
        self._loaded = False

    async def conduct(self, *begins: Begin, job: Job | None = None) -> None:
        """Begin each run when the one before it has ended. The first one is of this `job`, where there is one.

        Raises `Cancelled` if stopped before there was a run.
        """
        with Interrupts(self._view.end) as interrupts:
            await self._accompanied(self._carry_out(begins, job, interrupts), interrupts)

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
        async with backend(self._chosen) as opened:
            await opened.prepare()
            return await opened.plan(job)

    async def _carry_out(self, begins: tuple[Begin, ...], job: Job | None, interrupts: Interrupts) -> None:
        async with backend(self._chosen) as opened:
            await opened.prepare(job)
            self._loaded = True
            for begin in begins:
                run = await begin(opened)
                self.runs.append(run)
                await self._watch(opened, run, interrupts)
                if self.cancelled:
                    return

    async def _watch(self, opened: Backend, run: str, interrupts: Interrupts) -> None:
        async with asyncio.TaskGroup() as group, aclosing(opened.watch(run)) as updates:
            ear = group.create_task(self._cancel(opened, run, interrupts))
            async for update in updates:
                if isinstance(update, EventUpdate):
                    self._view.event(update.event)
                else:
                    self._view.progress(update)
            ear.cancel()

    async def _cancel(self, opened: Backend, run: str, interrupts: Interrupts) -> None:
        await interrupts.asked.wait()
        self.cancelled = True
        self._view.say("cancelling; ctrl-C again ends at once")
        await opened.cancel(run)

    async def _give_up(self, interrupts: Interrupts, work: "asyncio.Task[T]") -> None:
        """Stop the work if it is interrupted before there can be a run: models may take minutes to load."""
        await interrupts.asked.wait()
        if not self._loaded:
            work.cancel()
