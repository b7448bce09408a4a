"""Requests about runs: submit, resume, watch, cancel and plan."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import httpx2

from orchestrator.cli.client import Client, messages
from orchestrator.cli.daemon import DaemonGone, key_header
from orchestrator.run.job import Job
from orchestrator.run.planning import PlannedTask
from orchestrator.run.updates import EventUpdate, Progress, Update
from orchestrator.task.events import RunFinished, decode_event
from orchestrator.task.taskir.parse import dump_task, task_from

ATTEMPTS: Final = 3


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
        mode = None if job.any_mode else job.mode
        body = {"request": job.request, "directory": _text(job.directory), "mode": mode}
        planned = await self.ask("POST", "/v1/plans", json=body)
        task = task_from(planned["task"])
        return PlannedTask(task, planned["goes_on_after"], planned["mode"], planned["reason"])

    async def _updates(self, run: str, last_event: int) -> AsyncGenerator[Update, None]:
        headers = {"Last-Event-ID": str(last_event)}
        async with self.http.stream("GET", f"/v1/runs/{run}/events", headers=headers) as response:
            async for message in messages(response):
                yield _update(message)


def _job_json(job: Job) -> dict[str, Any]:
    limits = {"tokens": job.limits.tokens, "seconds": job.limits.seconds, "bytes": job.limits.bytes}
    body: dict[str, Any] = {
        "mode": None if job.any_mode else job.mode,
        "priority": job.priority,
        "directory": _text(job.directory),
        "limits": limits,
        "prior_task_ids": list(job.follows),
    }
    return body | ({"request": job.request} if job.task is None else {"task": dump_task(job.task)})


def _update(message: httpx2.ServerSentEvent) -> Update:
    if message.event == "progress":
        data = json.loads(message.data)
        return Progress(**data | {"gates": tuple(data.get("gates", ()))})
    return EventUpdate(decode_event(message.data), int(message.id))


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())
