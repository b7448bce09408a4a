"""The extension Tasks of MCP (`io.modelcontextprotocol/tasks`, of 2026-07-28): `watch` as a task.

A client that declares the extension gets a task instead of an answer that may take hours, and polls it, also after it
has lost the connection. The task's id is that of the run. Nothing else is stored, so tasks survive a restart of the
daemon.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final

from mcp import MCPError
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp_types import INVALID_PARAMS, CallToolResult, RequestParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from orchestrator.api.mcp.tools import WatchForm, authorise_call
from orchestrator.errors import OrchestratorError
from orchestrator.run.record.report import Report
from orchestrator.service.callers import Access
from orchestrator.service.service import Service

IDENTIFIER: Final = "io.modelcontextprotocol/tasks"
POLL_MS: Final = 1000  # the interval that clients are asked to poll at
TASK: Final = "task"  # the `resultType` of a task, in contrast to the answer to a call

Answered = Callable[[str], Awaitable[CallToolResult]]  # returns the answer of `watch` for a run that has ended


class TaskParams(RequestParams):
    """The parameters of all requests about a task."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    task_id: str = Field(min_length=1, max_length=200)


async def task_for(context: ServerRequestContext[Any, Any], form: BaseModel, service: Service) -> dict[str, Any] | None:
    """Return the task for a call, or None if the call must be answered at once.

    Only `watch` of a run that has not ended becomes a task, if the client supports tasks. Raises UnknownRun,
    JournalError.
    """
    # A client that gives a time limit wants to wait.
    if not isinstance(form, WatchForm) or form.seconds is not None or not _takes_tasks(context):
        return None
    task = await _state(service, form.run_id)
    return {**task, "resultType": TASK} if task["status"] == "working" else None


def add_tasks(server: Server[Any], service: Service, access: Access, answered: Answered) -> None:
    """Add the extension, with its requests for this caller, to a server."""

    async def authorised(name: str, params: TaskParams) -> dict[str, Any]:
        try:
            await authorise_call(name, service, access, params.task_id)
            return await _state(service, params.task_id)
        except OrchestratorError as error:
            raise MCPError(INVALID_PARAMS, f"taskId: {error}") from error

    async def get(_context: ServerRequestContext[Any, Any], params: TaskParams) -> dict[str, Any]:
        task = await authorised("tasks/get", params)
        if task["status"] != "completed":
            return task
        result = await answered(params.task_id)
        return {**task, "result": result.model_dump(by_alias=True, mode="json", exclude_none=True)}

    async def cancel(_context: ServerRequestContext[Any, Any], params: TaskParams) -> dict[str, Any]:
        await authorised("tasks/cancel", params)
        await service.cancel(params.task_id, None)
        return {}

    async def update(_context: ServerRequestContext[Any, Any], params: TaskParams) -> dict[str, Any]:
        await authorised("tasks/update", params)
        return {}  # runs ask their client for nothing, so there is nothing to be answered

    server.extensions[IDENTIFIER] = {}
    server.add_request_handler("tasks/get", TaskParams, get)
    server.add_request_handler("tasks/cancel", TaskParams, cancel)
    server.add_request_handler("tasks/update", TaskParams, update)


def _takes_tasks(context: ServerRequestContext[Any, Any]) -> bool:
    capabilities = context.session.client_capabilities
    declared = capabilities is not None and IDENTIFIER in (capabilities.extensions or {})
    return declared and context.protocol_version in MODERN_PROTOCOL_VERSIONS


async def _state(service: Service, run: str) -> dict[str, Any]:
    await service.row(run)  # raises UnknownRun
    return _task(await asyncio.to_thread(service.orchestrator.views.report, run))


def _task(report: Report) -> dict[str, Any]:
    # The task of a failed run is completed: its result says how the run failed.
    status = {"done": "completed", "failed": "completed", "cancelled": "cancelled"}.get(report.status, "working")
    steps_done = sum(step.state == "done" for step in report.steps)
    return {
        "taskId": report.run_id,
        "status": status,
        "statusMessage": f"{report.status}; {steps_done} of {len(report.steps)} steps are done",
        "createdAt": _time(report.accepted_at),
        "lastUpdatedAt": _time(report.accepted_at + report.wall_seconds),
        "ttlMs": None,
        "pollIntervalMs": POLL_MS,
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
