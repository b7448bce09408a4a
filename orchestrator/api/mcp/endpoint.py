"""The ASGI application at `/mcp`. `Guard` has checked token, host and origin before."""

import asyncio
import pkgutil
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, cast

from starlette.types import Receive, Scope, Send

from orchestrator.api.access import MCP, NEEDS, access_in
from orchestrator.api.errors import error_response
from orchestrator.api.mcp import PATH
from orchestrator.service.service import Service

ANSWER: Final = "orchestrator.api.mcp.server:answer"


class McpEndpoint:
    """Answer a message of MCP. Each tool has a permission of its own."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":  # there are neither sessions to end nor streams of their own to open
            message = f"{scope['method']} is not served at {PATH}; accepted: POST"
            refusal = error_response(HTTPStatus.METHOD_NOT_ALLOWED, message, "method_not_allowed", {"Allow": "POST"})
            await refusal(scope, receive, send)
            return
        access_in(scope).require(NEEDS[MCP])
        # The SDK is imported for the first request: that takes a second, and few daemons need it.
        try:
            resolved = await asyncio.to_thread(pkgutil.resolve_name, ANSWER)
        except ModuleNotFoundError:
            message = "MCP needs the extra `mcp`; accepted: pip install 'orchestrator[mcp]'"
            await error_response(HTTPStatus.NOT_IMPLEMENTED, message, "extra_missing")(scope, receive, send)
            return
        answer = cast(Callable[[Service, Scope, Receive, Send], Awaitable[None]], resolved)
        await answer(self._service, scope, receive, send)
