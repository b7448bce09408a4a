"""Speak the HTTP API: with the daemon of a state folder, or without one with the same application in this process."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, nullcontext
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, cast

import httpx2

from orchestrator.cli.daemon import (
    BASE,
    WAIT_FOREVER,
    DaemonGone,
    answers,
    connection_errors,
    read_answer,
    refuse_other,
)
from orchestrator.cli.on_demand import load
from orchestrator.cli.settings import Settings
from orchestrator.errors import InputError, Problem
from orchestrator.run.job import Job
from orchestrator.run.journal.codec import decode_event
from orchestrator.run.journal.home import Home
from orchestrator.run.planning import PlannedTask
from orchestrator.run.updates import EventUpdate, Progress, Update
from orchestrator.service.extent import Extent
from orchestrator.task.events import RunFinished
from orchestrator.task.taskir.parse import dump_task, task_from

ATTEMPTS: Final = 3
LONGEST_KEY: Final = 200
# Imported only without a daemon, because the API and the service are large.
IN_PROCESS: Final = "orchestrator.cli.in_process:transport_to_service"


class Client:
    """Sends requests to the API. An async context manager.

    If no daemon answers, this process serves itself, and opens the state folder as far as `extent` says. Every call
    raises DaemonRefused, InputError, and with a daemon NoDaemon and DaemonGone. Without one, entering or leaving raises
    JournalError, for example HomeLocked while another process owns the state folder, and RegistryError.
    """

    def __init__(self, options: Settings, extent: Extent = Extent.RUNS, *, with_registry: bool = True) -> None:
        self._options = options
        self._extent = extent
        self._with_registry = with_registry
        self._stack = AsyncExitStack()
        self.has_daemon = False  # whether a daemon answers, from when this is entered

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self.has_daemon = answers(self._options.home)
            transport = await stack.enter_async_context(self._transport())
            client = httpx2.AsyncClient(transport=transport, base_url=BASE, timeout=WAIT_FOREVER)
            self._client = await stack.enter_async_context(client)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    def _transport(self) -> AbstractAsyncContextManager[httpx2.AsyncBaseTransport]:
        if self.has_daemon:
            return nullcontext(httpx2.AsyncHTTPTransport(uds=str(Home(self._options.home).socket)))
        opened = load(IN_PROCESS)(self._options, self._extent, with_registry=self._with_registry)
        return cast(AbstractAsyncContextManager[httpx2.AsyncBaseTransport], opened)

    async def ask(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        """Send a request, and return the JSON object of the answer: {} if it has no content."""
        with connection_errors(self._options.home):
            return read_answer(await self._client.request(method, path, **more))

    async def submit(self, job: Job) -> str:
        """Submit a job and return its run. Raises InputError if the daemon uses another registry."""
        await self.check_registry()
        submitted = await self.ask("POST", "/v1/runs", json=job_json(job), headers=key_header(job.key))
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
        raise DaemonGone(f"the daemon has ended; it goes on with run {run} when it starts again")

    async def cancel(self, run: str) -> None:
        await self.ask("POST", f"/v1/runs/{run}/cancel", json={})

    async def plan(self, job: Job) -> PlannedTask:
        """Plan a request, without running it. Raises InputError if the daemon uses another registry."""
        await self.check_registry()
        mode = None if job.any_mode else job.mode
        body = {"request": job.request, "directory": _text(job.directory), "mode": mode}
        planned = await self.ask("POST", "/v1/plans", json=body)
        task = task_from(planned["task"])
        return PlannedTask(task, planned["goes_on_after"], planned["mode"], planned["reason"])

    async def check_registry(self) -> None:
        """Raises InputError if the daemon uses another registry than the one of the options."""
        ours = self._options.registry_flag
        if ours is not None and self.has_daemon:
            refuse_other((await self.ask("GET", "/v1/registry"))["path"], ours, self._options.home)

    async def events(self, path: str, query: Mapping[str, Any]) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """Yield the name and the data of each server-sent event, until the stream ends."""
        with connection_errors(self._options.home):
            async with self._client.stream("GET", path, params=dict(query)) as response:
                async for message in _messages(response):
                    yield message.event, json.loads(message.data)

    async def _updates(self, run: str, last_event: int) -> AsyncGenerator[Update, None]:
        headers = {"Last-Event-ID": str(last_event)}
        async with self._client.stream("GET", f"/v1/runs/{run}/events", headers=headers) as response:
            async for message in _messages(response):
                yield _update(message)


def ask(
    options: Settings,
    method: str,
    path: str,
    *,
    extent: Extent = Extent.JOURNAL,
    with_registry: bool = False,
    **more: Any,
) -> dict[str, Any]:
    """Send one request, and return the JSON object of the answer. Raises what `Client` raises."""

    async def send() -> dict[str, Any]:
        async with Client(options, extent, with_registry=with_registry) as client:
            return await client.ask(method, path, **more)

    return asyncio.run(send())


def key_header(key: str | None) -> dict[str, str]:
    """Return the header that makes repeated requests submit one run only. Raises InputError for a bad key."""
    if key is None:
        return {}
    if not 1 <= len(key) <= LONGEST_KEY or not key.isascii() or not key.isprintable() or key != key.strip():
        accepted = f"1 to {LONGEST_KEY} printable ASCII characters, with no space at either end"
        raise InputError(Problem("--key", f"{key!r} cannot be one", accepted))
    return {"Idempotency-Key": key}


def job_json(job: Job) -> dict[str, Any]:
    limits = {"tokens": job.limits.tokens, "seconds": job.limits.seconds, "bytes": job.limits.bytes}
    body: dict[str, Any] = {
        "mode": None if job.any_mode else job.mode,
        "priority": job.priority,
        "directory": _text(job.directory),
        "limits": limits,
        "prior_task_ids": list(job.follows),
    }
    return body | ({"request": job.request} if job.task is None else {"task": dump_task(job.task)})


async def _messages(response: httpx2.Response) -> AsyncGenerator[httpx2.ServerSentEvent, None]:
    if response.status_code != HTTPStatus.OK:
        await response.aread()
        read_answer(response)
    # A plan, or what a step has written, may be of any length.
    async for message in httpx2.EventSource(response, max_event_size=None):
        yield message


def _update(message: httpx2.ServerSentEvent) -> Update:
    if message.event == "progress":
        data = json.loads(message.data)
        return Progress(**data | {"gates": tuple(data.get("gates", ()))})
    return EventUpdate(decode_event(message.data), int(message.id))


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())
