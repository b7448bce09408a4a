"""Measure how soon small requests are answered while others, servers and patterns are made to keep the daemon busy."""

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2

from benchmarks.daemon.figures import PartResult, percentile, spread
from benchmarks.daemon.process import DaemonProcess, running_daemon, submit, wait_ended
from orchestrator.bench.goals import at_most, exactly

MOST_MS: Final = 250.0  # the goal for the 99th percentile of the small requests, in milliseconds
MOST_GROWTH_MIB: Final = 300.0
LEAST_SAMPLES: Final = 200  # each thing is repeated until this many small requests were timed next to it
SERVER: Final = Path(__file__).parent / "hostile_server.py"
TINY: Final = Path(__file__).parents[2] / "registry" / "tiny" / "large.gguf"
HEADERS: Final = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
SLOW_PATTERN: Final = "(?i)" + "[\x01-\uffff]" * 190  # a regular expression that takes a second or more to compile

Body = dict[str, Any]
Sample = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class HostileRequest:
    """A request that is made to keep the daemon busy, and how it has to be refused."""

    path: str
    body: Callable[[], Body | bytes]  # megabytes, which are made when they are needed
    status: int
    told: str  # a part of the message

    @property
    def content(self) -> bytes:
        """The body as it is sent."""
        body = self.body()
        return body if isinstance(body, bytes) else json.dumps(body).encode()


def chat(**more: Any) -> Body:
    """Return the body of a chat."""
    return {"model": "worker", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi."}], **more}


def message(**more: Any) -> Body:
    """Return the body of a chat with one message."""
    return chat(messages=[{"role": "user", **more}])


def wide(properties: int) -> Body:
    """Return a JSON Schema of an object with this number of `properties`."""
    return {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(properties)}}


def answer_as(schema: Body) -> Body:
    """Return the body of a chat whose answer has to match a schema."""
    return chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})


def hostile_requests() -> dict[str, HostileRequest]:
    """Return requests that are refused, by what they have too much of."""
    prompts = ["a"] * 10_000
    parts = [{"type": "text", "text": ""}] * 60_000
    calls = [{"function": {"name": "f"}}] * 30_000
    turns = [{"role": "user", "content": "a"}] * 60_000

    def biases(count: int) -> Body:
        return dict.fromkeys(map(str, range(count)), 1)

    def metadata() -> Body:
        return dict.fromkeys(map(str, range(100_000)), "a")

    def alternatives() -> Body:
        return {"anyOf": [wide(number % 7 + 1) | {"title": str(number)} for number in range(4000)]}

    def patterned() -> Body:
        return {f"p{number}": {"type": "string", "pattern": f"^a{number}$"} for number in range(3000)}

    def steps() -> list[Body]:
        return [{"id": f"S{number}", "outputs": []} for number in range(40_000)]

    chats, listed, containers = "/v1/chat/completions", "list of 4096 or fewer", "accepted: at most 65536"
    return {
        "prompts": HostileRequest("/v1/completions", lambda: {"model": "worker", "prompt": prompts}, 400, "at most 64"),
        "prompts of llama-server": HostileRequest("/completion", lambda: {"prompt": prompts}, 400, "at most 64"),
        "texts among tokens": HostileRequest("/completion", lambda: {"prompt": [1, "a"] * 30_000}, 413, "at most 1024"),
        "biases": HostileRequest(
            chats, lambda: chat(logit_bias=biases(500_000)), 413, "texts and keys; accepted: at most 262144"
        ),
        "fewer biases": HostileRequest(chats, lambda: chat(logit_bias=metadata()), 400, "object of 1024 or fewer"),
        "properties": HostileRequest(
            chats, lambda: answer_as(wide(5000)), 400, "5000 optional properties in one object"
        ),
        "alternatives": HostileRequest(chats, lambda: answer_as(alternatives()), 400, "accepted: at most 1000"),
        "patterns": HostileRequest(chats, lambda: answer_as(wide(0) | {"properties": patterned()}), 400, "at most 200"),
        "parts that are none": HostileRequest(chats, lambda: message(content=[1] * 1_000_000), 400, "content/0: is 1"),
        "parts": HostileRequest(chats, lambda: message(content=parts), 400, listed),
        "calls": HostileRequest(chats, lambda: message(tool_calls=calls), 400, listed),
        "blocks": HostileRequest("/v1/messages", lambda: message(content=parts), 400, listed),
        "items": HostileRequest("/v1/responses", lambda: {"model": "worker", "input": turns}, 400, listed),
        "metadata": HostileRequest(
            "/v1/responses",
            lambda: {"model": "worker", "input": "a", "metadata": metadata()},
            400,
            "object of 64 or fewer",
        ),
        "variables": HostileRequest(chats, lambda: chat(chat_template_kwargs=metadata()), 400, "object of 16 or fewer"),
        "steps": HostileRequest(
            "/v1/runs", lambda: {"task": {"objective": "a", "plan": {"steps": steps()}}}, 413, containers
        ),
        "lists": HostileRequest(chats, lambda: chat(unknown=[[]] * 2_000_000), 413, containers),
        "values": HostileRequest(
            chats, lambda: message(content=[1] * 2_000_000), 413, "values; accepted: at most 1114112"
        ),
        "depth": HostileRequest(chats, lambda: b'{"a":' * 1000, 400, "nested more than 128 levels deep"),
        "texts to embed": HostileRequest(
            "/v1/embeddings", lambda: {"model": "lexical", "input": [[1]] * 60_000}, 400, "2048"
        ),
        "parameters of MCP": HostileRequest(
            "/mcp",
            lambda: {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": [{}] * 300_000}},
            413,
            containers,
        ),
    }


async def measure(folder: Path, rounds: int) -> PartResult:
    """Do each hostile thing `rounds` times or more, and time small requests meanwhile."""
    seconds: dict[str, list[float]] = {}
    wrong: list[str] = []
    with _hostile_server() as address, running_daemon(folder / "home", **_settings(folder, address)) as daemon:
        async with daemon.client() as client, daemon.client() as small:
            await client.post("/v1/chat/completions", json=chat())
            before = _peak_bytes(daemon)
            for name, do in _hostile_things(client, wrong).items():
                async with _timed_small_requests(small) as samples:
                    done = 0
                    while done < rounds or len(samples) < LEAST_SAMPLES:
                        await do()
                        done += 1
                seconds[name] = samples
            growth = (_peak_bytes(daemon) - before) / (1 << 20)
    worst = {name: 1000 * percentile(samples, 99) for name, samples in seconds.items()}
    slowest = max(worst, key=lambda name: worst[name])
    figures = {
        "rounds": rounds,
        "slowest_beside": slowest,
        "growth_mib": round(growth, 1),
        "wrong": wrong,
        "small_requests": {name: spread(samples) for name, samples in seconds.items()},
    }
    goals = [
        at_most("small requests beside hostile ones, the largest p99 in ms", round(worst[slowest], 1), MOST_MS),
        at_most("growth of the daemon by hostile requests and servers, in MiB", round(growth, 1), MOST_GROWTH_MIB),
        exactly("hostile requests that were not refused as they have to be", len(wrong), 0),
    ]
    return PartResult(figures, goals)


def _hostile_things(client: httpx2.AsyncClient, wrong: list[str]) -> dict[str, Sample]:
    """Return the loads next to the small requests, by name. They add unexpected answers to `wrong`."""

    def sends(name: str, request: HostileRequest) -> Sample:
        content = request.content

        async def send() -> None:
            answer = await client.post(request.path, content=content, headers=HEADERS)
            if answer.status_code != request.status or request.told not in answer.text:
                wrong.append(f"{name}: {answer.status_code}: {answer.text[:200]}")

        return send

    def runs(tool: str, arguments: Body) -> Sample:
        step = {"id": "S1", "actor": "worker", "action": "Call it.", "outputs": ["o"], "kind": "tool"}
        task = {"objective": "a", "plan": {"steps": [{**step, "tools": [tool], "arguments": arguments}]}}

        async def run() -> None:
            if tool == "mcp:many/echo":
                await client.post("/v1/runs", json={"task": task})  # refused, because its tools cannot be listed
            else:
                await wait_ended(client, await submit(client, {"task": task}))

        return run

    async def endless() -> None:
        answer = await client.post("/v1/chat/completions", json=chat(model="endless"))
        if '"finish_reason":"length"' not in answer.text:
            wrong.append(f"a backend without an end: {answer.text[:200]}")

    sent = {name: sends(name, request) for name, request in hostile_requests().items()}
    return sent | {
        "a pattern for grep": runs("grep", {"pattern": SLOW_PATTERN}),
        "a compressed answer of an MCP server": runs("mcp:bomb/echo", {}),
        "50,000 tools of an MCP server": runs("mcp:many/echo", {}),
        "a backend without an end": endless,
    }


@asynccontextmanager
async def _timed_small_requests(client: httpx2.AsyncClient) -> AsyncIterator[list[float]]:
    """Send small requests one after the other while the block lasts, and yield the seconds that each took."""
    seconds: list[float] = []
    over = asyncio.Event()

    async def send() -> None:
        while not over.is_set():
            begun = time.perf_counter()
            await client.get("/health")
            seconds.append(time.perf_counter() - begun)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(send())
        try:
            yield seconds
        finally:
            over.set()


@contextmanager
def _hostile_server() -> Iterator[str]:
    """Run the server that sends too much while the block lasts, and yield its address."""
    pipe = subprocess.PIPE
    command = [sys.executable, str(SERVER)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:  # noqa: S603 - our own program
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def _settings(folder: Path, address: str) -> dict[str, str]:
    """Return the settings of a daemon that knows the hostile server as two MCP servers and as a model."""
    registry = folder / "model_registry.yaml"
    models = {
        "tiny": {"file": str(TINY), "threads": 1, "residency": "hot", "context": 2048},
        "endless": {"backend": "openai", "base_url": f"{address}/v1", "model": "endless", "context": 8192},
    }
    roles = {"worker": {"model": "tiny", "tier": "C"}, "frontdoor": {"model": "tiny", "tier": "A"}}
    registry.write_text(json.dumps({"models": models, "roles": roles}))
    servers = {name: {"url": f"{address}/{name}"} for name in ("bomb", "many")}
    return {"registry": str(registry), "mcp_servers": json.dumps(servers), "memory_use": "off"}


def _peak_bytes(daemon: DaemonProcess) -> int:
    """Return the most memory that the daemon's process has had so far."""
    peak = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{daemon.process.pid}/status").read_text())
    assert peak is not None, "Linux tells the peak of every process"
    return int(peak[1]) << 10
