"""Answer requests to `/mcp` by the official SDK. Of the SDK's server for HTTP, only this file knows.

The SDK answers both kinds of revisions at one address: that of 2026-07-28, in which every request stands for itself,
and the older ones, which begin with `initialize`. Those get no session either, as all state is in runs: after a restart
of the daemon a client goes on as if nothing had been.
"""

import json
import logging
from importlib.metadata import version
from typing import Any, Final

from mcp import MCPError
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)
from starlette.types import Receive, Scope, Send

from orchestrator.api.access import access_in
from orchestrator.api.mcp.tasks import add_tasks, task_for
from orchestrator.api.mcp.tools import NEEDS, OFFERED, CallContext, WatchForm, read_call
from orchestrator.errors import OrchestratorError
from orchestrator.service.callers import Access
from orchestrator.service.service import Service

INSTRUCTIONS: Final = (
    "Runs jobs on local language models. `submit` a request in plain language, `watch` its run until it has ended, and"
    " fetch artifacts with `result`."
)
TOOLS: Final = [
    Tool(
        name=one.name,
        description=one.description,
        input_schema=one.schema,
        annotations=ToolAnnotations(read_only_hint=one.reads_only, open_world_hint=False),
    )
    for one in OFFERED.values()
]

logging.getLogger("mcp").setLevel(logging.WARNING)  # it tells the beginning and the end of each request as news


async def answer(service: Service, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one request."""
    manager = StreamableHTTPSessionManager(
        make_server(service, access_in(scope)),
        stateless=True,
        max_request_body_size=service.configuration.server.max_body,
    )
    async with manager.run():
        await manager.handle_request(scope, receive, send)


def make_server(service: Service, access: Access) -> Server[Any]:
    """Return the MCP server for one request of this caller, with the tools that the caller may call."""

    async def list_tools(
        _context: ServerRequestContext[Any, Any], _params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(tools=[tool for tool in TOOLS if access.may(NEEDS[tool.name])])

    async def call_tool(
        context: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> CallToolResult | dict[str, Any]:
        if params.name not in OFFERED:
            raise MCPError(INVALID_PARAMS, f"there is no tool {params.name!r}; accepted: {', '.join(OFFERED)}")

        async def progress(at: float, message: str) -> None:
            await context.session.report_progress(at, None, message)

        try:
            asked = await read_call(params.name, params.arguments or {}, service, access)
            if (task := await task_for(context, asked, service)) is not None:
                return task
            found = await OFFERED[params.name].carry_out(asked, CallContext(service, access, progress))
        except OrchestratorError as error:  # so that a model sees it, and may try again
            return CallToolResult(content=[TextContent(type="text", text=str(error))], is_error=True)
        return _result(found)

    async def watched(run: str) -> CallToolResult:
        async def nobody(_at: float, _message: str) -> None:
            """Tell nothing: the run has ended."""

        asked = WatchForm(run_id=run)
        return _result(await OFFERED["watch"].carry_out(asked, CallContext(service, access, nobody)))

    server: Server[Any] = Server(
        "orchestrator", version=version("orchestrator"), instructions=INSTRUCTIONS, on_list_tools=list_tools
    )
    server.add_request_handler("tools/call", CallToolRequestParams, call_tool)
    add_tasks(server, service, access, watched)
    return server


def _result(found: dict[str, Any]) -> CallToolResult:
    text = TextContent(type="text", text=json.dumps(found, ensure_ascii=False))
    return CallToolResult(content=[text], structured_content=found)
