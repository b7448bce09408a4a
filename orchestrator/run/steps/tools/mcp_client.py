"""Connect to one MCP server: a program in the sandbox, or an address. Only this file uses the SDK's client."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Final, cast

import anyio
import httpx2
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    PARSE_ERROR,
    REQUEST_TIMEOUT,
    AudioContent,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    Implementation,
    RequestParamsMeta,
    ResourceLink,
    TextContent,
    TextResourceContents,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from orchestrator.errors import leaves
from orchestrator.run.sandbox.contract import JobOutcome
from orchestrator.run.sandbox.errors import SandboxError
from orchestrator.run.sandbox.process import wait_despite_cancellation
from orchestrator.run.sandbox.session import Session
from orchestrator.run.steps.tools.contract import ToolError, ToolResult, ToolServerFailed
from orchestrator.run.steps.tools.mcp_messages import (
    MAX_MESSAGE,
    MAX_PAGES,
    MAX_TOOLS,
    LimitedResponse,
    MessageTooLarge,
    Received,
    ScreenedMessages,
    ToolListing,
    checked_message,
    unreadable_answer,
)
from orchestrator.run.steps.tools.servers import FURTHER_PAGES, OpenProgram, ServedTool, ToolServer
from orchestrator.run.steps.unshown import size_of_base64, unshown
from orchestrator.task.events import Failure, FailureKind
from orchestrator.task.taskir.json_text import compact_json
from orchestrator.task.taskir.validation import BadSchema, OutputSchema, SchemaMismatch

# MCP has no idempotency keys. A server that looks for this name can tell that a call is repeated, since the first one
# may have been lost in a crash.
IDEMPOTENCY_KEY: Final = "orchestrator/idempotency-key"
MAX_RESULT: Final = 1 << 20  # bytes of the result of one call
EVIDENCE: Final = 4_000  # characters of an answer that is an error
MAX_SHOWN_LINE: Final = 2_000  # bytes of a line that is no message
SHOWN: Final = 300  # characters of a server's text that a message quotes
GONE: Final = frozenset({401, 403, 429, 502, 503, 504})  # HTTP statuses about the server, not about the call
# For a program that has closed its stdout to end by itself, so that its exit code is known.
ENDING_SECONDS: Final = 1.0

Streams = tuple[Received, MemoryObjectSendStream[SessionMessage]]

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Diagnostics:
    """What a server wrote or did, other than its answers."""

    # Set when the connection has ended and `why` is complete.
    over: asyncio.Event = field(default_factory=asyncio.Event)
    why: str = ""
    rubbish: str = ""  # the first line that is no message
    refused: str = ""  # its last HTTP error, which may be harmless: older revisions start with one
    unavailable: bool = False  # whether that status is one of `GONE`

    def format_failure(self, otherwise: str) -> str:
        wrote = f"; it wrote a line that is no message of MCP: {self.rubbish!r}" if self.rubbish else ""
        refused = f"; its last error was {self.refused}" if self.refused else ""
        return f"{self.why or otherwise}{wrote}{refused}"

    async def note(self, response: httpx2.Response) -> None:
        response.__class__ = LimitedResponse  # the client, which makes responses, has no setting for their class
        if response.is_error:
            self.unavailable = response.status_code in GONE
            self.refused = f"HTTP {response.status_code} {response.reason_phrase}".strip()


@asynccontextmanager
async def _screened(
    transport: AbstractAsyncContextManager[Any], listing: ToolListing
) -> AsyncIterator[tuple[ScreenedMessages, Any]]:
    async with transport as (received, sent):
        yield ScreenedMessages(received, listing), sent


class McpConnection:
    def __init__(self, server: ToolServer, client: Client, listing: ToolListing, diagnostics: _Diagnostics) -> None:
        self._server = server
        self._client = client
        self._diagnostics = diagnostics
        self.tools: Mapping[str, ServedTool] = listing.tools
        self.left_out: Mapping[str, str] = listing.left_out

    async def call(self, tool: str, arguments: Mapping[str, Any], key: str) -> ToolResult:
        """Call a tool and return its result. The idempotency key goes along in `_meta`.

        Raises ToolError if the call was refused, took too long or has too large a result, and ToolServerFailed.
        """
        try:
            result = await self._client.call_tool(
                tool,
                dict(arguments),
                read_timeout_seconds=self._server.seconds,
                meta=cast(RequestParamsMeta, {IDEMPOTENCY_KEY: key}),
            )
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                raise await self._failed("it has closed the connection") from error
            if error.code == REQUEST_TIMEOUT:
                raise ToolError(self._too_long(), FailureKind.TIMEOUT) from error
            if error.code == PARSE_ERROR:
                raise await self._failed(f"its answer cannot be read: {_clip(str(error))}", wait=False) from error
            if self._diagnostics.unavailable:
                raise await self._failed(_clip(str(error)), wait=False) from error
            raise ToolError(f"the server refused the call: {_clip(str(error))}", FailureKind.CODE) from error
        except TimeoutError as error:
            raise ToolError(self._too_long(), FailureKind.TIMEOUT) from error
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, httpx2.TransportError) as error:
            raise await self._failed("it has closed the connection") from error
        except (ValidationError, RuntimeError) as error:  # RuntimeError: it asks for input without end
            raise await self._failed(f"its answer is no result of a tool: {_clip(str(error))}", wait=False) from error
        if wrong := await asyncio.to_thread(_why_not_as_promised, self.tools.get(tool), result):
            raise await self._failed(f"its answer is no result of a tool: {wrong}", wait=False)
        return _result_of(result)

    def _too_long(self) -> str:
        return self._diagnostics.format_failure(f"there was no answer within {self._server.seconds:g} s")

    async def _failed(self, why: str, *, wait: bool = True) -> ToolServerFailed:
        if wait:
            # What is known of its end may take a moment to arrive.
            with suppress(TimeoutError):
                async with asyncio.timeout(ENDING_SECONDS):
                    await self._diagnostics.over.wait()
        return ToolServerFailed(f"MCP server {self._server.name}: {self._diagnostics.format_failure(why)}")


@asynccontextmanager
async def connect(server: ToolServer, program: OpenProgram) -> AsyncIterator[McpConnection]:
    """Connect to a server and list its tools; close the connection at the end of the block.

    `program` runs the server's command, if it has one. The newest revision of MCP that both sides speak is used.
    Raises ToolServerFailed if there is no connection within `start_seconds`.
    """
    ready: asyncio.Future[McpConnection] = asyncio.get_running_loop().create_future()
    leave = asyncio.Event()
    # The SDK keeps a connection open in a task group, whose end would cancel whoever waits in it, and wraps the errors
    # of its block. So a task of its own holds the connection, and attempts only send requests over it.
    holding = asyncio.create_task(_hold(server, program, ready, leave))  # awaited below, whatever happens
    try:
        yield await ready
    finally:
        leave.set()
        if not ready.done() or ready.cancelled():
            holding.cancel()
        await wait_despite_cancellation(holding)


async def _hold(
    server: ToolServer, program: OpenProgram, ready: "asyncio.Future[McpConnection]", leave: asyncio.Event
) -> None:
    # `ready` gets the connection, or the error of its start.
    diagnostics = _Diagnostics()
    name = f"MCP server {server.name}"
    try:
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(server.start_seconds):
                transport: AbstractAsyncContextManager[Any] = (
                    _stdio(server, program, diagnostics) if server.command else _http(server, diagnostics)
                )
                info = Implementation(name="orchestrator", version=version("orchestrator"))
                listing = ToolListing()
                client = Client(
                    _screened(transport, listing),
                    cache=None,
                    client_info=info,
                    read_timeout_seconds=server.start_seconds,
                )
                await stack.enter_async_context(client)
                await _list_all(client, listing)
            if listing.left_out:
                log.warning("tools of an MCP server are left out", server=server.name, why=_shown_left_out(listing))
            if not ready.done():
                ready.set_result(McpConnection(server, client, listing, diagnostics))
            await leave.wait()
    except asyncio.CancelledError:
        return  # only `connect` cancels it, which has been left before the connection was there
    except TimeoutError:
        _tell(
            ready,
            ToolServerFailed(
                f"{name}: {diagnostics.format_failure(f'it was not ready within {server.start_seconds:g} s')}"
            ),
        )
    except Exception as error:  # noqa: BLE001 - whatever the SDK raises, it is the server's failure
        diagnostics.why = diagnostics.why or "; ".join(
            dict.fromkeys(_clip(_error_text(leaf)) for leaf in leaves(error))
        )
        if ready.done():
            log.warning("an MCP server has failed", server=server.name, error=diagnostics.why)
        _tell(ready, ToolServerFailed(f"{name}: {diagnostics.format_failure('it failed')}"))
    finally:
        diagnostics.over.set()


def _tell(ready: "asyncio.Future[McpConnection]", error: ToolServerFailed) -> None:
    if not ready.done():
        ready.set_exception(error)


async def _list_all(client: Client, listing: ToolListing) -> None:
    # Raises MCPError for the first page. If the list breaks off later or does not end, its tools so far are used. An
    # empty page or cursor is no end.
    cursor: str | None = None
    cursors = set[str | None]()
    while cursor not in cursors:
        if len(cursors) == MAX_PAGES or len(listing.tools) >= MAX_TOOLS:
            listing.left_out.setdefault(FURTHER_PAGES, f"its list continues after {len(cursors)} pages")
            return
        cursors.add(cursor)
        try:
            page = await client.list_tools(cursor=cursor)
        except MCPError as error:
            if cursor is None or error.code == CONNECTION_CLOSED:
                raise
            if cursor:  # an empty one is how some servers say that the list has ended
                listing.left_out[FURTHER_PAGES] = f"the page {_clip(cursor)!r} was refused: {_clip(str(error))}"
            return
        cursor = page.next_cursor
        if cursor is None:
            return
    if cursor:
        listing.left_out[FURTHER_PAGES] = f"its list names the page {_clip(cursor)!r} twice"


def _shown_left_out(listing: ToolListing) -> str:
    return _clip("; ".join(f"{name}: {why}" for name, why in listing.left_out.items()))


@asynccontextmanager
async def _http(server: ToolServer, diagnostics: _Diagnostics) -> AsyncIterator[Any]:
    timeout = httpx2.Timeout(max(server.seconds, server.start_seconds))
    async with (
        httpx2.AsyncClient(
            headers=server.headers, timeout=timeout, event_hooks={"response": [diagnostics.note]}
        ) as http,
        streamable_http_client(server.url, http_client=http, max_sse_event_size=MAX_MESSAGE) as streams,
    ):
        yield streams


@asynccontextmanager
async def _stdio(server: ToolServer, program: OpenProgram, diagnostics: _Diagnostics) -> AsyncIterator[Streams]:
    async with program(server) as session:
        from_server, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        sent, to_server = anyio.create_memory_object_stream[SessionMessage](0)
        async with from_server, received, sent, to_server, anyio.create_task_group() as tasks:
            tasks.start_soon(_receive, session, from_server, diagnostics)
            tasks.start_soon(_send, session, to_server)
            try:
                yield received, sent
            finally:
                tasks.cancel_scope.cancel()


async def _receive(
    session: Session, stream: MemoryObjectSendStream[SessionMessage | Exception], diagnostics: _Diagnostics
) -> None:
    async with stream:
        try:
            while (line := await session.receive_line()) is not None:
                try:
                    message = jsonrpc_message_adapter.validate_json(checked_message(line), by_name=False)
                except ValueError as error:
                    # Such lines are only noted: some programs write logs.
                    diagnostics.rubbish = diagnostics.rubbish or _clip(line[:MAX_SHOWN_LINE].decode(errors="replace"))
                    if (answer := unreadable_answer(line, error)) is not None:
                        await stream.send(SessionMessage(answer))
                    continue
                await stream.send(SessionMessage(message))
            diagnostics.why = _end_of(await _ended(session))
        except (SandboxError, MessageTooLarge) as error:
            diagnostics.why = str(error)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return  # the connection is being closed
        diagnostics.over.set()


async def _send(session: Session, stream: MemoryObjectReceiveStream[SessionMessage]) -> None:
    # What the program no longer reads is dropped: `_receive` ends the connection, and knows why.
    async with stream:
        async for message in stream:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            await session.send_line(text.encode())


async def _ended(session: Session) -> JobOutcome:
    try:
        async with asyncio.timeout(ENDING_SECONDS):
            return await session.end()
    except TimeoutError:
        session.kill()
        return await session.end()


def _end_of(outcome: JobOutcome) -> str:
    if outcome.limit is not None:
        how = f"it ran into its limit: {outcome.limit}"
    elif outcome.signal is not None:
        how = f"its program was ended by signal {outcome.signal}"
    else:
        how = f"its program has ended with exit code {outcome.exit_code}"
    last_output = outcome.stderr.decode(errors="replace").strip()[-SHOWN:]
    return f"{how}: {last_output}" if last_output else how


def _why_not_as_promised(tool: ServedTool | None, result: CallToolResult) -> str:
    if tool is None or tool.output_schema is None or result.is_error:
        return ""
    if result.structured_content is None:
        return "it has no structured content, and the tool has an output schema"
    try:
        OutputSchema(tool.output_schema).check(result.structured_content)
    except SchemaMismatch as error:
        return f"its structured content does not match the tool's output schema: {error}"
    except BadSchema:
        return ""  # nothing else depends on it
    return ""


def _result_of(result: CallToolResult) -> ToolResult:
    text = "\n".join(map(_shown, result.content))
    value = text if result.structured_content is None else result.structured_content
    size = len(text.encode()) + (0 if value is text else len(compact_json(value).encode()))
    if size > MAX_RESULT:
        raise ToolError(f"the result has {size} bytes; accepted: at most {MAX_RESULT}, so ask for less")
    if not result.is_error:
        return ToolResult(value, text if result.content else None)
    message = text or compact_json(value)
    failure = Failure(FailureKind.CODE, f"the tool failed: {_clip(message)}", message[-EVIDENCE:])
    return ToolResult(message, message, failure)


def _shown(block: ContentBlock) -> str:
    # Models here read only texts, so other blocks are only described.
    match block:
        case TextContent():
            return block.text
        case ImageContent() | AudioContent():
            return unshown(block.type, block.mime_type, size_of_base64(block.data))
        case ResourceLink():
            return f"[resource {block.uri}]"
        case EmbeddedResource(resource=TextResourceContents(text=text)):
            return text
        case EmbeddedResource():
            return f"[resource {block.resource.uri}: it is no text]"


def _error_text(error: BaseException) -> str:
    if isinstance(error, ValidationError):
        return f"it answers what is no MCP: {error}"
    return str(error) or type(error).__name__


def _clip(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}…"
