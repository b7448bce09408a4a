"""Carry out runs in the foreground: start them over the API, show them while they run, and cancel them on ctrl-C."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx2

from orchestrator.cli.client import Client, messages
from orchestrator.cli.daemon import DaemonGone, key_header
from orchestrator.cli.errors import Cancelled, ExitCode
from orchestrator.cli.live import RunDisplay
from orchestrator.cli.settings import Settings
from orchestrator.run.job import Job
from orchestrator.run.planning import PlannedTask
from orchestrator.run.updates import EventUpdate, Progress, Update
from orchestrator.task.events import RunFinished, decode_event
from orchestrator.task.taskir.parse import dump_task, task_from

T = TypeVar("T")

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
ATTEMPTS: Final = 3  # to read the events of a run


class RunClient(Client):
    """Sends requests about runs to the API."""

    async def submit(self, job: Job) -> str:
        """Submit a job and return its run. Raises InputError if the daemon uses another registry."""
        await self.check_registry()
        submitted = await self.ask("POST", "/v1/runs", json=_job_json(job), headers=key_header(job.key))
        return str(submitted["run_id"])

    async def resume(self, run: str) -> str:
        """Continue a run that was interrupted, and return its id. Raises InputError if it has ended."""
        await self.ask("POST", f"/v1/runs/{run}/resume")
        return run

    async def watch(self, run: str) -> AsyncGenerator[Update, None]:
        """Yield the updates of a run, from its first event until it has ended.

        Connects again after the last event if the connection to a daemon breaks. Raises DaemonGone if that fails.
        """
        last_event, failures = 0, 0
        while failures < ATTEMPTS:
            try:
                async with aclosing(self._updates(run, last_event)) as updates:
                    async for update in updates:
                        yield update
                        failures = 0
                        if isinstance(update, EventUpdate):
                            last_event = update.number
                            if isinstance(update.event, RunFinished):
                                return
            except httpx2.TransportError:
                pass
            if not self.has_daemon:
                return
            failures += 1
        raise DaemonGone(f"the daemon has ended; it continues run {run} when it starts again")

    async def cancel(self, run: str) -> None:
        await self.ask("POST", f"/v1/runs/{run}/cancel", json={})

    async def plan(self, job: Job) -> PlannedTask:
        """Plan a request, without running it. Raises InputError if the daemon uses another registry."""
        await self.check_registry()
        planned = await self.ask("POST", "/v1/plans", json=_described(job))
        task = task_from(planned["task"])
        return PlannedTask(task, planned["goes_on_after"], planned["mode"], planned["reason"])

    async def forecast(self, job: Job) -> dict[str, Any]:
        """Return what can be predicted of a job, as `POST /v1/forecasts` answers. Nothing runs.

        Raises InputError for a job that cannot be run, and if the daemon uses another registry.
        """
        await self.check_registry()
        return await self.ask("POST", "/v1/forecasts", json=_described(job))

    async def _updates(self, run: str, last_event: int) -> AsyncGenerator[Update, None]:
        headers = {"Last-Event-ID": str(last_event)}
        async with self.http.stream("GET", f"/v1/runs/{run}/events", headers=headers) as response:
            async for message in messages(response):
                yield _update(message)


def _job_json(job: Job) -> dict[str, Any]:
    limits = {"tokens": job.limits.tokens, "seconds": job.limits.seconds, "bytes": job.limits.bytes}
    return {**_described(job), "priority": job.priority, "limits": limits, "prior_task_ids": list(job.follows)}


def _described(job: Job) -> dict[str, Any]:
    source = {"request": job.request} if job.task is None else {"task": dump_task(job.task)}
    return {**source, "mode": None if job.any_mode else job.mode, "directory": _text(job.directory)}


def _update(message: httpx2.ServerSentEvent) -> Update:
    if message.event == "progress":
        data = json.loads(message.data)
        return Progress(**data | {name: tuple(data.get(name, ())) for name in ("gates", "gates_since", "nodes")})
    return EventUpdate(decode_event(message.data), int(message.id))


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())


StartRun = Callable[[RunClient], Awaitable[str]]  # starts or resumes a run, and returns its id


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

    async def ask(self, question: Callable[[RunClient], Coroutine[Any, Any, T]]) -> T:
        """Return the answer to a question that starts no run. Raises Cancelled if interrupted."""
        with SignalHandlers(self._display.end) as signals:
            return await self._interruptible(self._ask(question), signals)

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

    async def _ask(self, question: Callable[[RunClient], Coroutine[Any, Any, T]]) -> T:
        async with RunClient(self._options) as client:
            return await question(client)

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
