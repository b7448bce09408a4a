"""Give steps the tools of the MCP servers that the configuration names, each tool as `mcp:SERVER/TOOL`.

Which of them a step may call is what its `tools` name, as with all tools; without that, no server is even started. The
SDK is in `mcp_client`, which is imported when the first of them is needed: the import takes a second and brings a web
server with it, and most installations name no server.
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
from orchestrator.run.gates import BadSchema, OutputSchema
from orchestrator.run.sandbox import MIB, Sandbox, SandboxJob, SandboxLimits, Session
from orchestrator.run.sandbox.memory_budget import MemoryBudget, fit_to_budget, memory_cost
from orchestrator.run.steps.tools.contract import Tool, ToolContext, ToolResult, ToolServerFailed

PREFIX: Final = "mcp:"
"""With this the name of a tool of an MCP server begins."""
CLIENT: Final = "orchestrator.run.steps.tools.mcp_client:connect"
DAY: Final = 24 * 3600
"""Seconds that a program may run, and also compute, at most: attempts have limits of their own."""
ON_CHANNEL: Final = 'exec "$@" <&3 >&3 3>&-'
"""The shell's words that run a program with the session's channel as its stdin and stdout."""
FURTHER_TOOLS: Final = "further tools"
FURTHER_PAGES: Final = "further pages"
"""What of a list of tools is left out that has no name."""
SHOWN_TOOLS: Final = 100
"""How many names of a server's tools a message shows."""
DESCRIPTION: Final = 400
"""How many characters of a tool's description a model is shown."""

ProbeSandbox = Callable[[], Awaitable[Sandbox]]
"""Returns the sandbox. Raises SandboxUnavailable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolServer:
    """An MCP server of the configuration: either `command`, which is run in the sandbox, or `url`."""

    name: str
    command: tuple[str, ...] = ()
    """The program and its arguments. It speaks MCP on its stdin and stdout, and has no network."""
    folders: tuple[str, ...] = ()
    """Folders of this machine that the program may read, where they are, by absolute paths."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the program, beside those of the sandbox."""
    memory: int = 512 * MIB
    """Bytes of memory of the program."""
    url: str = ""
    """The address of a server that speaks streamable HTTP."""
    token_env: str = ""
    """The environment variable of ours that holds the server's bearer token; empty if it needs none."""
    seconds: float = 60.0
    """How long one call may take."""
    start_seconds: float = 30.0
    """How long it may take to start the server, to agree on a revision with it, and to list its tools."""

    @property
    def headers(self) -> dict[str, str]:
        """The headers of requests to `url`. Raises ToolServerFailed without the token."""
        if not self.token_env:
            return {}
        if not (token := os.environ.get(self.token_env)):
            raise ToolServerFailed(f"the environment variable {self.token_env}, which is to hold its token, is not set")
        return {"Authorization": f"Bearer {token}"}


Configured = Callable[[], Mapping[str, ToolServer]]
"""Returns the servers of the configuration by name, as it is now."""


def no_servers() -> Mapping[str, ToolServer]:
    """Default for `Configured`: return no server."""
    return {}


@dataclass(frozen=True, slots=True)
class ServedTool:
    """A tool as its server describes it."""

    name: str
    description: str
    schema: Mapping[str, Any]
    """The JSON Schema of its arguments."""
    output_schema: Mapping[str, Any] | None = None
    """The JSON Schema of the structured content of its results, if it promises one."""


class ServerConnection(Protocol):
    """A connected server."""

    @property
    def tools(self) -> Mapping[str, ServedTool]:
        """The server's tools by name, as it listed them when it was connected."""

    @property
    def left_out(self) -> Mapping[str, str]:
        """Why tools that the server has listed are not among these, by name, and what else is wrong with the list."""

    async def call(self, tool: str, arguments: Mapping[str, Any], key: str) -> ToolResult:
        """Call a tool and return its result. The server is told the idempotency key.

        Raises ToolError, ToolServerFailed.
        """


OpenProgram = Callable[[ToolServer], AbstractAsyncContextManager[Session]]
"""Runs the program of a server while the block lasts. The session's channel is its stdin and stdout. Entering it raises
SandboxError."""
Connect = Callable[[ToolServer, OpenProgram], AbstractAsyncContextManager[ServerConnection]]
"""Connects to a server for as long as the block lasts. Entering it raises ToolServerFailed."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What servers say of their tools. The keys are full names, `mcp:SERVER/TOOL`."""

    tools: Mapping[str, Tool] = field(default_factory=dict)
    """The tools that can be used, of those that were asked for."""
    unavailable: Mapping[str, str] = field(default_factory=dict)
    """Why tools that were asked for cannot be used."""


class ToolServers:
    """The MCP servers of the configuration.

    A server is connected for one attempt, or to list its tools, and closed after it: what a program has kept in memory
    does not get from one run to another, and one that has died is started anew by the next attempt. Together the
    programs may take a third of the sandbox's memory: steps may need some for tools and code while they hold a server.
    """

    def __init__(self, configured: Configured, sandbox: ProbeSandbox) -> None:
        self._configured = configured
        self._sandbox = sandbox
        self._memory: MemoryBudget | None = None

    @property
    def configured(self) -> bool:
        """Whether there is any server."""
        return bool(self._configured())

    async def listing(self, names: Iterable[str]) -> Listing:
        """Return what the servers of these tools have, and why some of the names cannot be used. It never raises."""
        asked = [name for name in dict.fromkeys(names) if is_served(name)]
        servers = self._configured()
        unknown = {name: why for name in asked if (why := _why_unknown(name, servers))}
        by_server: dict[str, list[str]] = {}
        for name in asked:
            if name not in unknown:
                by_server.setdefault(server_of(name), []).append(name)
        async with asyncio.TaskGroup() as tasks:
            listing = [tasks.create_task(self._listed(servers[server], some)) for server, some in by_server.items()]
        parts = [task.result() for task in listing]
        return Listing(
            {name: tool for part in parts for name, tool in part.tools.items()},
            unknown | {name: why for part in parts for name, why in part.unavailable.items()},
        )

    async def _listed(self, server: ToolServer, names: Sequence[str]) -> Listing:
        """Return what a server has, and why some of these names of its tools cannot be used."""
        try:
            async with self._connect(server) as connection:
                return await asyncio.to_thread(_checked, connection, names)
        except ToolServerFailed as error:
            return Listing(unavailable=dict.fromkeys(names, str(error)))

    @asynccontextmanager
    async def open(self, names: Iterable[str]) -> AsyncIterator[dict[str, Tool]]:
        """Connect to the servers of these tools while the block lasts, and yield those of the tools that are theirs.

        Raises ToolServerFailed, also for a tool that its server does not have.
        """
        asked = [name for name in dict.fromkeys(names) if is_served(name)]
        servers = self._configured()
        found = dict[str, Tool]()
        async with AsyncExitStack() as stack:
            for name in asked:
                if why := _why_unknown(name, servers):
                    raise ToolServerFailed(why)
            for server in dict.fromkeys(map(server_of, asked)):
                connection = await stack.enter_async_context(self._connect(servers[server]))
                names = [name for name in asked if server_of(name) == server]
                listing = await asyncio.to_thread(_checked, connection, names)
                if listing.unavailable:
                    raise ToolServerFailed(next(iter(listing.unavailable.values())))
                found |= listing.tools
            yield found

    @asynccontextmanager
    async def _connect(self, server: ToolServer) -> AsyncIterator[ServerConnection]:
        connect = cast(Connect, await asyncio.to_thread(pkgutil.resolve_name, CLIENT))
        async with connect(server, self._program) as connection:
            yield connection

    @asynccontextmanager
    async def _program(self, server: ToolServer) -> AsyncIterator[Session]:
        """Run a server's program in the sandbox, as `OpenProgram` says. It waits until there is memory for it."""
        sandbox = (await self._sandbox()).showing(server.folders)
        if self._memory is None:
            self._memory = MemoryBudget(sandbox.budget.total // 3)
        counted = sandbox.groups is not None
        limits = _limits(server, self._memory.total, counted=counted)
        variables = [f"{name}={value}" for name, value in server.env.items()]
        job = SandboxJob(argv=("sh", "-c", ON_CHANNEL, "mcp", "env", *variables, *server.command), limits=limits)
        async with self._memory.reserve(memory_cost(limits, counted=counted)), sandbox.open(job) as session:
            yield session


def _limits(server: ToolServer, total: int, *, counted: bool) -> SandboxLimits:
    """Return the limits of a server's program, of which several are to fit into `total` bytes. Raises InvalidJob.

    Where no control group counts the memory of all processes together (`counted`), each of them may take `memory`, and
    a thread counts as one. Then a program has a quarter of the total, or more if that is too little for four of them.
    """
    limits = SandboxLimits(wall=DAY, cpu=DAY, memory=server.memory, processes=16, output=MIB)
    few = replace(limits, processes=4)
    share = min(total, max(total // 4, memory_cost(few, counted=counted)))
    return fit_to_budget(limits, total if counted else share, counted=counted)


NO_TOOL_SERVERS: Final = ToolServers(no_servers, Sandbox.probe)


def is_served(tool: str) -> bool:
    """Return whether a tool of this name is one of an MCP server."""
    return tool.startswith(PREFIX)


def server_of(tool: str) -> str:
    """Return the name of the server in the full name of a tool."""
    return tool.removeprefix(PREFIX).partition("/")[0]


def _tool_name(name: str) -> str:
    """Return the server's own name of a tool, from its full name."""
    return name.removeprefix(f"{PREFIX}{server_of(name)}/")


def _why_unknown(name: str, servers: Mapping[str, ToolServer]) -> str:
    """Return why a name can be none of a tool of these servers; empty if it can."""
    server, _, tool = name.removeprefix(PREFIX).partition("/")
    if not server or not tool:
        return f"{name} names no tool of a server; accepted: {PREFIX}SERVER/TOOL"
    if server not in servers:
        known = ", ".join(servers) or "none: see [mcp] of the configuration"
        return f"there is no MCP server {server!r}; accepted: {known}"
    return ""


def _checked(connection: ServerConnection, names: Iterable[str]) -> Listing:
    """Return the tools with these full names that can be used, and why the others cannot. May take seconds."""
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
        f"; {what}: {connection.left_out[what]}"
        for what in (FURTHER_TOOLS, FURTHER_PAGES)
        if what in connection.left_out
    )
    return f"MCP server {server} has no tool {tool!r}; it has {has}{more}{cut}"


def _why_unusable(schema: Mapping[str, Any]) -> str:
    """Return why no call could be written or checked by this schema of arguments; empty if that can be done.

    Keywords that a grammar cannot express are no reason: arguments are checked by the whole schema.
    """
    if schema.get("type") != "object":
        return f"its type is {schema.get('type')!r}; accepted: 'object'"
    if outside := next((one for one in _references(schema) if not one.startswith("#")), None):
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


def _tool(name: str, one: ServedTool, connection: ServerConnection) -> Tool:
    properties, required = one.schema.get("properties", {}), one.schema.get("required", ())
    return Tool(
        name,
        " ".join(one.description.split())[:DESCRIPTION],
        partial(_call, connection, name, one.name),
        {key: value if isinstance(value, dict) else {} for key, value in properties.items()},
        tuple(required),
        schema=one.schema,
    )


async def _call(
    connection: ServerConnection, name: str, tool: str, context: ToolContext, arguments: Mapping[str, Any]
) -> ToolResult:
    return await connection.call(tool, arguments, context.call_key(name, arguments))
