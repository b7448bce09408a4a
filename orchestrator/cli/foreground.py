"""Carry out runs in the foreground: start them, show them while they run, and cancel them on ctrl-C."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import Any, Final, TypeVar

from orchestrator.cli.errors import Cancelled, ExitCode
from orchestrator.cli.live import RunDisplay
from orchestrator.cli.run_client import RunClient
from orchestrator.cli.settings import Settings
from orchestrator.run.job import Job
from orchestrator.run.planning import PlannedTask
from orchestrator.run.updates import EventUpdate

T = TypeVar("T")

StartRun = Callable[[RunClient], Awaitable[str]]  # starts or resumes a run, and returns its id

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Foreground:
    """Carries out one run after another, until one is cancelled, and shows them in `display`."""

    def __init__(self, options: Settings, display: RunDisplay) -> None:
        self._options = options
        self._display = display
        self.runs: list[str] = []  # ids in the order of their starts
        self.cancelled = False  # whether the user has interrupted a run
        self._cancels_runs = False  # on signals, because a run may have begun

    async def run_all(self, *starts: StartRun) -> None:
        """Start each run when the one before it has ended. Raises Cancelled if interrupted before the first run."""
        with SignalHandlers(self._display.end) as signals:
            await self._interruptible(self._run_all(starts, signals), signals)

    async def plan(self, job: Job) -> PlannedTask:
        """Plan a job without running it. Raises Cancelled if interrupted."""
        with SignalHandlers(self._display.end) as signals:
            return await self._interruptible(self._plan(job), signals)

    async def _interruptible(self, work: Coroutine[Any, Any, T], signals: "SignalHandlers") -> T:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work)
            meanwhile = (self._display.animate(), self._stop_on_signal(signals, task))
            side_tasks = [group.create_task(side_work) for side_work in meanwhile]
            await asyncio.wait([task])
            for side_task in side_tasks:
                side_task.cancel()
        if task.cancelled():
            raise Cancelled
        return task.result()

    async def _plan(self, job: Job) -> PlannedTask:
        async with RunClient(self._options) as client:
            return await client.plan(job)

    async def _run_all(self, starts: tuple[StartRun, ...], signals: "SignalHandlers") -> None:
        async with RunClient(self._options) as client:
            self._cancels_runs = client.has_daemon  # which may have accepted a job when it has not answered yet
            for start in starts:
                run = await start(client)
                self._cancels_runs = True
                self.runs.append(run)
                await self._watch(client, run, signals)
                if self.cancelled:
                    return

    async def _watch(self, client: RunClient, run: str, signals: "SignalHandlers") -> None:
        async with asyncio.TaskGroup() as group, aclosing(client.watch(run)) as updates:
            cancelling = group.create_task(self._cancel_on_signal(client, run, signals))
            async for update in updates:
                if isinstance(update, EventUpdate):
                    self._display.event(update.event)
                else:
                    self._display.progress(update)
            cancelling.cancel()

    async def _cancel_on_signal(self, client: RunClient, run: str, signals: "SignalHandlers") -> None:
        await signals.received.wait()
        self.cancelled = True
        self._display.show_message("cancelling; ctrl-C again ends at once")
        await client.cancel(run)

    async def _stop_on_signal(self, signals: "SignalHandlers", work: "asyncio.Task[T]") -> None:
        # To check a job may take long. When a run has begun, `_cancel_on_signal` cancels that.
        await signals.received.wait()
        if not self._cancels_runs:
            work.cancel()


class SignalHandlers:
    """The first SIGINT or SIGTERM only sets `received`; a second one ends the process. A context manager.

    `restore_terminal` is called before the process ends.
    """

    def __init__(self, restore_terminal: Callable[[], None]) -> None:
        self.received = asyncio.Event()
        self._restore_terminal = restore_terminal

    def __enter__(self) -> "SignalHandlers":
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.remove_signal_handler(number)

    def _handle(self) -> None:
        if not self.received.is_set():
            self.received.set()
            return
        self._restore_terminal()
        sys.stderr.write("\nended at once; `orchestrator resume` continues the run\n")
        sys.stderr.flush()
        os._exit(ExitCode.CANCELLED)
