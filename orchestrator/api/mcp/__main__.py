"""`python -m orchestrator.api.mcp`: an MCP server over stdin and stdout that forwards all calls to the daemon.

For MCP clients that start their servers as programs. The daemon does the work, and continues when this program ends.
"""

import asyncio
import os
import sys
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams

from orchestrator.api.mcp import PATH
from orchestrator.errors import OrchestratorError, leaves
from orchestrator.run.journal.home import Home, home_path

URL: Final = f"http://localhost{PATH}"
CONNECT_SECONDS: Final = 5.0


async def bridge(home: Path) -> None:
    """Serve stdin and stdout until stdin ends. Connection errors may come in exception groups."""
    transport = httpx2.AsyncHTTPTransport(uds=str(Home(home).socket))
    timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)  # `watch` waits as long as a run takes
    async with (
        httpx2.AsyncClient(transport=transport, timeout=timeout) as http,
        Client(streamable_http_client(URL, http_client=http, max_sse_event_size=None), cache=None) as daemon,
        stdio_server() as (received, sent),
    ):
        server = bridge_server(daemon)
        await server.run(received, sent, server.create_initialization_options())


def bridge_server(daemon: Client) -> Server[Any]:
    """Return an MCP server with the tools of the daemon."""

    async def list_tools(
        _context: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return await daemon.list_tools(cursor=None if params is None else params.cursor)

    async def call_tool(context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> CallToolResult:
        async def report(progress: float, total: float | None, message: str | None) -> None:
            await context.session.report_progress(progress, total, message)

        return await daemon.call_tool(params.name, params.arguments, progress_callback=report)

    return Server(
        "orchestrator",
        version=version("orchestrator"),
        instructions=daemon.instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def main() -> int:
    """Serve, and return the exit code: 0 when stdin ends, 1 if the daemon cannot be reached."""
    try:
        asyncio.run(bridge(home_path(os.environ)))
    except (OrchestratorError, MCPError, httpx2.TransportError, OSError) as error:
        return _print_errors([error])
    except BaseExceptionGroup as group:
        errors = list(leaves(group))
        if not all(isinstance(leaf, MCPError | httpx2.TransportError | OSError) for leaf in errors):
            raise
        return _print_errors(errors)
    except KeyboardInterrupt:
        return 0
    return 0


def _print_errors(errors: Iterable[BaseException]) -> int:
    for text in dict.fromkeys(str(error) or type(error).__name__ for error in errors):
        print(f"error: the daemon cannot be reached: {text}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
