"""The daemon as an MCP server.

tools     what it offers: submit, watch, result, explain, models, cancel
tasks     `watch` as a task of MCP, for clients that take tasks
endpoint  the ASGI application at `/mcp`
server    answers one request to it, by the official SDK, which is imported for the first request
__main__  `python -m orchestrator.api.mcp`: the same over stdio, which hands everything on to the daemon
"""

from typing import Final

PATH: Final = "/mcp"
"""The address of the MCP server at the daemon."""
