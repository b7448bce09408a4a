"""The tools of the MCP servers in the configuration, each as `mcp:SERVER/TOOL`.

A step may call those that its `tools` name; without any, no server is started.
"""

import asyncio
import os
import pkgutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol, cast

from orchestrator.engine.client.grammar import schema_grammar
from orchestrator.engine.errors import BadGrammar
from orchestrator.run.sandbox.contract import MIB, SandboxJob, SandboxLimits
from orchestrator.run.sandbox.memory_budget import MemoryBudget, fit_to_budget, memory_cost
from orchestrator.run.sandbox.sandbox import Sandbox
from orchestrator.run.sandbox.session import Session
from orchestrator.run.steps.tools.contract import Tool, ToolContext, ToolResult, ToolServerFailed
from orchestrator.task.taskir.validation import BadSchema, OutputSchema

PREFIX: Final = "mcp:"
CLIENT: Final = "orchestrator.run.steps.tools.mcp_client:connect"
# The most seconds that a program may run or compute: attempts have limits of their own.
DAY: Final = 24 * 3600
# Shell code that runs a program with the session's channel as its stdin and stdout.
ON_CHANNEL: Final = 'exec "$@" <&3 >&3 3>&-'
# Names for parts of a list of tools that are left out and have none.
FURTHER_TOOLS: Final = "further tools"
FURTHER_PAGES: Final = "further pages"
SHOWN_TOOLS: Final = 100  # names of a server's tools in a message
DESCRIPTION: Final = 400  # characters of a tool's description for the model

ProbeSandbox = Callable[[], Awaitable[Sandbox]]  # raises SandboxUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolServer:
    """An MCP server of the configuration: either `command`, which is run in the sandbox, or `url`."""

    name: str
    command: tuple[str, ...] = ()  # speaks MCP on its stdin and stdout, and has no network
    folders: tuple[str, ...] = ()  # that the program may read, by absolute paths
    env: Mapping[str, str] = field(default_factory=dict)  # of the program, besides the sandbox's
    memory: int = 512 * MIB  # bytes
    url: str = ""  # speaks streamable HTTP
    token_env: str = ""  # our environment variable that holds the bearer token; empty for none
    seconds: float = 60.0  # of one call
    start_seconds: float = 30.0  # to start, to agree on a revision, and to list the tools

    @property
    def headers(self) -> dict[str, str]:
        """HTTP headers for `url`. Raises ToolServerFailed if the token is not set."""
        if not self.token_env:
            return {}
        if not (token := os.environ.get(self.token_env)):
            raise ToolServerFailed(f"the environment variable {self.token_env}, which is to hold its token, is not set")
        return {"Authorization": f"Bearer {token}"}


# The servers of the configuration by name, as it is now.
Configured = Callable[[], Mapping[str, ToolServer]]


def no_servers() -> Mapping[str, ToolServer]:
    return {}


@dataclass(frozen=True, slots=True)
class ServedTool:
    # As its server describes it.
    name: str
    description: str
    schema: Mapping[str, Any]  # of its arguments
    output_schema: Mapping[str, Any] | None = None  # of the structured content that it promises, if any


class ServerConnection(Protocol):
    """A connected server."""

    @property
    def tools(self) -> Mapping[str, ServedTool]:
        """The tools by name, as listed when the server was connected."""

    @property
    def left_out(self) -> Mapping[str, str]:
        """Why listed tools are not in `tools`, by name, and what else is wrong with the list."""

    async def call(self, tool: str, arguments: Mapping[str, Any], key: str) -> ToolResult:
        """Call a tool with an idempotency key. Raises ToolError, ToolServerFailed."""


# Runs a server's program while the block lasts; the session's channel is its stdin and stdout. Entering raises
# SandboxError.
OpenProgram = Callable[[ToolServer], AbstractAsyncContextManager[Session]]
# Connects to a server while the block lasts. Entering raises ToolServerFailed.
Connect = Callable[[ToolServer, OpenProgram], AbstractAsyncContextManager[ServerConnection]]


@dataclass(frozen=True, slots=True)
class Listing:
    """What servers say about requested tools, by full name (`mcp:SERVER/TOOL`)."""

    tools: Mapping[str, Tool] = field(default_factory=dict)  # those that can be used
    unavailable: Mapping[str, str] = field(default_factory=dict)  # why the others cannot be used


class ToolServers:
    """The MCP servers of the configuration.

    A server is connected for one attempt or listing, and closed after it. So what a program keeps in memory does not
    get into another run, and the next attempt starts a dead one again.
    """

    def __init__(self, configured: Configured, sandbox: ProbeSandbox) -> None:
        self._configured = configured
        self._sandbox = sandbox
        self._memory: MemoryBudget | None = None

    @property
    def configured(self) -> bool:
        return bool(self._configured())

    async def listing(self, names: Iterable[str]) -> Listing:
        """Return which of these tools can be used, and why the others cannot. Never raises."""
        served_names = [name for name in dict.fromkeys(names) if is_served(name)]
        servers = self._configured()
        unknown = {name: why for name in served_names if (why := _why_unknown(name, servers))}
        by_server: dict[str, list[str]] = {}
        for name in served_names:
            if name not in unknown:
                by_server.setdefault(server_of(name), []).append(name)
        async with asyncio.TaskGroup() as tasks:
            listing = [
                tasks.create_task(self._listed(servers[server], tool_names)) for server, tool_names in by_server.items()
            ]
        parts = [task.result() for task in listing]
        return Listing(
            {name: tool for part in parts for name, tool in part.tools.items()},
            unknown | {name: why for part in parts for name, why in part.unavailable.items()},
        )

    async def _listed(self, server: ToolServer, names: Sequence[str]) -> Listing:
        try:
            async with self._connect(server) as connection:
                return await asyncio.to_thread(_checked, connection, names)
        except ToolServerFailed as error:
            return Listing(unavailable=dict.fromkeys(names, str(error)))

    @asynccontextmanager
    async def open(self, names: Iterable[str]) -> AsyncIterator[dict[str, Tool]]:
        """Connect to the servers of these tools while the block lasts, and yield the tools.

        Raises ToolServerFailed, also for a tool that its server does not have.
        """
        served_names = [name for name in dict.fromkeys(names) if is_served(name)]
        servers = self._configured()
        served_tools = dict[str, Tool]()
        async with AsyncExitStack() as stack:
            for name in served_names:
                if why := _why_unknown(name, servers):
                    raise ToolServerFailed(why)
            for server in dict.fromkeys(map(server_of, served_names)):
                connection = await stack.enter_async_context(self._connect(servers[server]))
                names = [name for name in served_names if server_of(name) == server]
                listing = await asyncio.to_thread(_checked, connection, names)
                if listing.unavailable:
                    raise ToolServerFailed(next(iter(listing.unavailable.values())))
                served_tools |= listing.tools
            yield served_tools

    @asynccontextmanager
    async def _connect(self, server: ToolServer) -> AsyncIterator[ServerConnection]:
        # Importing the SDK takes a second and brings a web server with it, and most installations have no MCP server.
        try:
            connect = cast(Connect, await asyncio.to_thread(pkgutil.resolve_name, CLIENT))
        except ModuleNotFoundError as error:
            message = "tools of MCP servers need the extra `mcp`; accepted: pip install 'orchestrator[mcp]'"
            raise ToolServerFailed(message) from error
        async with connect(server, self._program) as connection:
            yield connection

    @asynccontextmanager
    async def _program(self, server: ToolServer) -> AsyncIterator[Session]:
        sandbox = (await self._sandbox()).showing(server.folders)
        if self._memory is None:
            # All programs together get a third: steps may need memory for tools and code while they hold a server.
            self._memory = MemoryBudget(sandbox.budget.total // 3)
        counted = sandbox.groups is not None
        limits = _limits(server, self._memory.total, counted=counted)
        variables = [f"{name}={value}" for name, value in server.env.items()]
        job = SandboxJob(argv=("sh", "-c", ON_CHANNEL, "mcp", "env", *variables, *server.command), limits=limits)
        # Waits until there is memory for the program.
        async with self._memory.reserve(memory_cost(limits, counted=counted)), sandbox.open(job) as session:
            yield session


def _limits(server: ToolServer, total: int, *, counted: bool) -> SandboxLimits:
    # If no control group counts the memory of all processes together (`counted`), each may take `memory`, and a thread
    # counts as one. Then a program has a quarter of the total, or more if that is too little for four of them.
    limits = SandboxLimits(wall=DAY, cpu=DAY, memory=server.memory, processes=16, output=MIB)
    few = replace(limits, processes=4)
    share = min(total, max(total // 4, memory_cost(few, counted=counted)))
    return fit_to_budget(limits, total if counted else share, counted=counted)


NO_TOOL_SERVERS: Final = ToolServers(no_servers, Sandbox.probe)


def is_served(tool: str) -> bool:
    return tool.startswith(PREFIX)


def server_of(tool: str) -> str:
    return tool.removeprefix(PREFIX).partition("/")[0]


def _tool_name(name: str) -> str:
    return name.removeprefix(f"{PREFIX}{server_of(name)}/")


def _why_unknown(name: str, servers: Mapping[str, ToolServer]) -> str:
    server, _, tool = name.removeprefix(PREFIX).partition("/")
    if not server or not tool:
        return f"{name} names no tool of a server; accepted: {PREFIX}SERVER/TOOL"
    if server not in servers:
        configured = ", ".join(servers) or "none: see [mcp] of the configuration"
        return f"there is no MCP server {server!r}; accepted: {configured}"
    return ""


def _checked(connection: ServerConnection, names: Iterable[str]) -> Listing:
    # May take seconds, so callers use a thread.
    usable, unavailable = dict[str, Tool](), dict[str, str]()
    for name in names:
        tool = connection.tools.get(_tool_name(name))
        if tool is None:
            unavailable[name] = _why_missing(name, connection)
        elif why := _why_unusable(tool.schema):
            unavailable[name] = f"the schema of the arguments of {name} cannot be used: {why}"
        else:
            usable[name] = _tool(name, tool, connection)
    return Listing(usable, unavailable)


def _why_missing(name: str, connection: ServerConnection) -> str:
    server, tool = server_of(name), _tool_name(name)
    if why := connection.left_out.get(tool):
        return f"MCP server {server}: its tool {tool!r} cannot be used: {why}"
    has = ", ".join(list(connection.tools)[:SHOWN_TOOLS]) or "no tools"
    more = f", … ({len(connection.tools)} in all)" if len(connection.tools) > SHOWN_TOOLS else ""
    cut = "".join(
        f"; {part}: {connection.left_out[part]}"
        for part in (FURTHER_TOOLS, FURTHER_PAGES)
        if part in connection.left_out
    )
    return f"MCP server {server} has no tool {tool!r}; it has {has}{more}{cut}"


def _why_unusable(schema: Mapping[str, Any]) -> str:
    # Keywords that a grammar cannot express are no reason: arguments are checked by the whole schema.
    if schema.get("type") != "object":
        return f"its type is {schema.get('type')!r}; accepted: 'object'"
    if outside := next((reference for reference in _references(schema) if not reference.startswith("#")), None):
        return f"it refers to {outside!r}; accepted: references into itself, as no document is fetched"
    try:
        OutputSchema(schema)
        schema_grammar(schema)
    except (BadSchema, BadGrammar) as error:
        return str(error)
    return ""


def _references(schema: object) -> Iterator[str]:
    if isinstance(schema, Mapping):
        yield from (str(schema[key]) for key in ("$ref", "$dynamicRef") if isinstance(schema.get(key), str))
        schema = list(schema.values())
    for part in schema if isinstance(schema, list) else ():
        yield from _references(part)


def _tool(name: str, served: ServedTool, connection: ServerConnection) -> Tool:
    properties, required = served.schema.get("properties", {}), served.schema.get("required", ())
    return Tool(
        name,
        " ".join(served.description.split())[:DESCRIPTION],
        partial(_call, connection, name, served.name),
        {key: value if isinstance(value, dict) else {} for key, value in properties.items()},
        tuple(required),
        schema=served.schema,
    )


async def _call(
    connection: ServerConnection, name: str, tool: str, context: ToolContext, arguments: Mapping[str, Any]
) -> ToolResult:
    return await connection.call(tool, arguments, context.call_key(name, arguments))
