"""A small MCP server on the SDK, which speaks all of its revisions: `python modern.py` (stdio), or with a port (HTTP).

Over HTTP it wants the bearer token `sesame`.
"""

import asyncio
import json
import sys
from typing import Any

import uvicorn
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, TextContent, Tool
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


async def _list(_context: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None) -> ListToolsResult:
    """List three tools on two pages."""
    if params is None or params.cursor is None:
        add = Tool(name="add", description="Add two\n  numbers.", input_schema=ADD)
        return ListToolsResult(tools=[add], next_cursor="more")
    return ListToolsResult(tools=[Tool(name=name, input_schema={"type": "object"}) for name in ("revision", "key")])


async def _call(context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> CallToolResult:
    arguments = params.arguments or {}
    found: Any = context.protocol_version
    if params.name == "add":
        found = {"sum": arguments["a"] + arguments["b"]}
    if params.name == "key":
        found = dict(params.meta or {})["orchestrator/idempotency-key"]
    return CallToolResult(content=[TextContent(type="text", text=json.dumps(found))], structured_content=found)


def make_server() -> Server[Any]:
    """Return the server."""
    return Server("modern", version="1", on_list_tools=_list, on_call_tool=_call)


class Doorkeeper:
    """Lets requests with the token pass."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        headers = dict(scope.get("headers", ()))
        if scope["type"] == "http" and headers.get(b"authorization") != b"Bearer sesame":
            await Response("the token is missing", status_code=401)(scope, receive, send)
            return
        await self._app(scope, receive, send)


async def _stdio() -> None:
    server = make_server()
    async with stdio_server() as (received, sent):
        await server.run(received, sent, server.create_initialization_options())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        app = Doorkeeper(make_server().streamable_http_app(stateless_http=True))
        uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
    else:
        asyncio.run(_stdio())
