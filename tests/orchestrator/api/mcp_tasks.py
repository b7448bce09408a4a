"""A client's part of the extension Tasks of MCP, which the SDK has hooks for and no more."""

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientSession
from mcp_types import CallToolResult, EmptyResult, Request, RequestParams, Result

IDENTIFIER = "io.modelcontextprotocol/tasks"


class TaskState(Result):
    """A task."""

    task_id: str
    status: str
    status_message: str = ""
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int
    result: dict[str, Any] | None = None


class CreatedTask(TaskState):
    """A task in place of the answer to a call."""

    result_type: Literal["task"]


class TaskParams(RequestParams):
    """Which task a request is about."""

    task_id: str


class TaskRequest(Request[TaskParams, str]):
    """A request about a task."""


class TaskExtension(ClientExtension):
    """Waits for tasks, so that a call returns what it returns without them."""

    identifier = IDENTIFIER

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Take tasks in place of answers."""
        return [ResultClaim(result_type="task", model=CreatedTask, resolve=_resolved)]


async def get(session: ClientSession, task: str) -> TaskState:
    """Return the state of a task."""
    return await session.send_request(TaskRequest(method="tasks/get", params=TaskParams(task_id=task)), TaskState)


async def tell(session: ClientSession, method: str, task: str) -> None:
    """Send a request that is only acknowledged."""
    await session.send_request(TaskRequest(method=method, params=TaskParams(task_id=task)), EmptyResult)


async def ended(session: ClientSession, task: str) -> TaskState:
    """Return the state of a task when it has ended."""
    state = await get(session, task)
    while state.status == "working":
        await asyncio.sleep(state.poll_interval_ms / 10_000)
        state = await get(session, task)
    return state


async def _resolved(created: CreatedTask, context: ClaimContext) -> CallToolResult:
    state = await ended(context.session, created.task_id)
    return CallToolResult.model_validate(state.result)
