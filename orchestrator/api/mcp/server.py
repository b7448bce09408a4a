"""Answer requests to `/mcp` with the official SDK. Only this file uses the SDK's HTTP server.

The SDK serves revision 2026-07-28, whose requests are independent, and older ones, which start with `initialize`. None
gets a session, because all state is in runs: a client continues after a restart of the daemon.
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
        name=tool.name,
        description=tool.description,
        input_schema=tool.schema,
        annotations=ToolAnnotations(read_only_hint=tool.reads_only, open_world_hint=False),
    )
    for tool in OFFERED.values()
]

logging.getLogger("mcp").setLevel(logging.WARNING)  # it logs the start and the end of each request as INFO


async def answer(service: Service, scope: Scope, receive: Receive, send: Send) -> None:
    manager = StreamableHTTPSessionManager(
        make_server(service, access_in(scope)),
        stateless=True,
        max_request_body_size=service.configuration.server.max_body,
    )
    async with manager.run():
        await manager.handle_request(scope, receive, send)


def make_server(service: Service, access: Access) -> Server[Any]:
    """Return the MCP server for one request, with the tools that its caller may call."""

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
            form = await read_call(params.name, params.arguments or {}, service, access)
            if (task := await task_for(context, form, service)) is not None:
                return task
            result = await OFFERED[params.name].carry_out(form, CallContext(service, access, progress))
        except OrchestratorError as error:  # so that a model sees it, and may try again
            return CallToolResult(content=[TextContent(type="text", text=str(error))], is_error=True)
        return _result(result)

    async def watched(run: str) -> CallToolResult:
        async def nobody(_at: float, _message: str) -> None:
            """Report nothing: the run has ended."""

        form = WatchForm(run_id=run)
        return _result(await OFFERED["watch"].carry_out(form, CallContext(service, access, nobody)))

    server: Server[Any] = Server(
        "orchestrator", version=version("orchestrator"), instructions=INSTRUCTIONS, on_list_tools=list_tools
    )
    server.add_request_handler("tools/call", CallToolRequestParams, call_tool)
    add_tasks(server, service, access, watched)
    return server


def _result(result: dict[str, Any]) -> CallToolResult:
    text = TextContent(type="text", text=json.dumps(result, ensure_ascii=False))
    return CallToolResult(content=[text], structured_content=result)
