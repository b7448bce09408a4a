"""Read what an MCP server sends, within limits: the SDK reads messages of any size."""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCResponse

from orchestrator.run.steps.tools.servers import FURTHER_TOOLS, ServedTool
from orchestrator.task.taskir.json_size import json_excess, with_whole_characters

# Bytes, decompressed. A result has up to six times its size if all of its characters are escaped.
MAX_MESSAGE: Final = 6 << 20
MAX_TOOLS: Final = 1000  # of a server; only the first ones are used
MAX_PAGES: Final = 100  # of a server's list of tools
MAX_NAME: Final = 200  # characters of the name of a tool
MAX_REASON: Final = 300  # characters of the reason why a message cannot be read
# The id in a message that cannot be parsed.
_ID: Final = re.compile(rb'"id"\s*:\s*(?:(\d{1,18})|"([^"\\]{1,64})")')

Received = MemoryObjectReceiveStream[SessionMessage | Exception]


class MessageTooLarge(httpx2.StreamError):
    """A message exceeds a limit. The SDK answers the waiting request with this error's text."""

    def __init__(self, problem: str, accepted: str) -> None:
        super().__init__(f"{problem}; accepted: {accepted}")


class LimitedResponse(httpx2.Response):
    """An HTTP answer whose messages keep to the limits."""

    async def aiter_bytes(self, chunk_size: int | None = None) -> AsyncGenerator[bytes, None]:
        """Yield decompressed whole lines (a message has one). Raises MessageTooLarge."""
        is_stream = self.headers.get("content-type", "").startswith("text/event-stream")
        line, size = bytearray(), 0
        async with aclosing(super().aiter_bytes(chunk_size)) as pieces:
            async for piece in pieces:
                size += len(piece)
                end = max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1
                if end:
                    yield checked_message(bytes(line) + piece[:end])
                    line.clear()
                line += piece[end:]
                if len(line) > MAX_MESSAGE or (size > MAX_MESSAGE and not is_stream):
                    raise _too_long()
        yield checked_message(bytes(line))


def checked_message(text: bytes) -> bytes:
    """Return one or more lines of JSON with whole characters only. Raises MessageTooLarge."""
    if len(text) > MAX_MESSAGE:
        raise _too_long()
    if (excess := json_excess(text)) is not None:
        raise MessageTooLarge(excess.what, excess.accepted)
    return with_whole_characters(text)


def _too_long() -> MessageTooLarge:
    return MessageTooLarge(f"a message has more than {MAX_MESSAGE} bytes", f"at most {MAX_MESSAGE} bytes")


class ToolListing:
    """The tools that a server has listed so far, without those that cannot be used."""

    def __init__(self) -> None:
        self.tools: dict[str, ServedTool] = {}
        # Why tools are not used, by name, and what else is wrong with the list.
        self.left_out: dict[str, str] = {}

    def take(self, message: SessionMessage | Exception) -> SessionMessage | Exception:
        """Read the tools of a message that has some, and return it with the valid ones."""
        answer = message.message if isinstance(message, SessionMessage) else None
        if isinstance(answer, JSONRPCResponse) and isinstance(listed := answer.result.get("tools"), list):
            # The SDK refuses a list because of one invalid tool, so it only gets what calls of the valid ones need.
            answer.result["tools"] = [
                {"name": tool.name, "inputSchema": tool.schema}
                for number, item in enumerate(listed)
                if (tool := self._tool(number, item)) is not None
            ]
        return message

    def _tool(self, number: int, item: object) -> ServedTool | None:
        if len(self.tools) >= MAX_TOOLS:
            self.left_out.setdefault(FURTHER_TOOLS, f"only the first {MAX_TOOLS} are used")
            return None
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(item, dict) or not isinstance(name, str) or not 0 < len(name) <= MAX_NAME:
            self.left_out.setdefault(f"tool {number}", f"its name is not text of 1 to {MAX_NAME} characters")
            return None
        if not isinstance(schema := item.get("inputSchema"), dict):
            self.left_out.setdefault(name, "it has no inputSchema; accepted: a JSON Schema of the type 'object'")
            return None
        if name in self.tools:
            return None
        described, output = item.get("description"), item.get("outputSchema")
        tool = ServedTool(
            name,
            described if isinstance(described, str) else "",
            {"type": "object", **schema},  # the only type that there is, which some servers leave out
            output if isinstance(output, dict) else None,
        )
        self.tools[name] = tool
        return tool


class ScreenedMessages:
    """A stream of messages for the SDK, whose lists of tools a `ToolListing` has read."""

    def __init__(self, stream: Received, listing: ToolListing) -> None:
        self._stream = stream
        self._listing = listing

    @property
    def last_context(self) -> Any:
        # The context of the sender of the last message, if the stream knows it.
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return self._listing.take(await self._stream.receive())

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> "ScreenedMessages":
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> "ScreenedMessages":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def unreadable_answer(line: bytes, error: ValueError) -> JSONRPCError | None:
    """Return an error for the request that a broken message answers, so that it does not wait for its timeout."""
    id_match = _ID.search(line) if b'"jsonrpc"' in line and b'"method"' not in line else None
    if id_match is None:
        return None
    number, text = id_match.groups()
    reason = ErrorData(code=PARSE_ERROR, message=str(error)[:MAX_REASON])
    return JSONRPCError(
        jsonrpc="2.0", id=text.decode(errors="replace") if number is None else int(number), error=reason
    )
