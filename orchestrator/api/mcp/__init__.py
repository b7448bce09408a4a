"""The daemon as an MCP server.

tools     what it offers: submit, watch, result, explain, models, cancel
tasks     `watch` as an MCP task
endpoint  the ASGI application at `/mcp`
server    answers one request, with the official SDK
__main__  `python -m orchestrator.api.mcp`: the same over stdio
"""

from typing import Final

PATH: Final = "/mcp"
