"""Run an HTTP server in a process of its own, and send it all requests at once, each on a connection of its own."""

import asyncio
import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import httpx2
import psutil

from benchmarks.engine.system import BenchmarkPrompt, Measured, RequestLoad

START_SECONDS = 300.0
CHAT_MODEL = "chat"  # the name of the model in chat requests
_LOOK_SECONDS = 0.1
_QUIET_SHARE = 0.1  # Servers are quiet while they together use no more than this fraction of one core
MOST_QUIET_SECONDS = 120.0  # how long to wait for servers to become quiet
_LOG_TAIL = 2000
_ANSWER_HEAD = 500
# A connection is not used again after this long, because the server might close it just when we send a request.
_IDLE_SECONDS = 1.0

# Makes the JSON of a request from a prompt and the number of tokens to generate.
Request = Callable[[BenchmarkPrompt, int], dict[str, Any]]


class Answered(NamedTuple):
    """An answer of a server."""

    text: str
    asked: int  # how many tokens the prompt had
    tokens: int  # how many tokens the answer has


Answer = Callable[[dict[str, Any]], Answered]  # Reads an answer from the JSON of a response


class ServerFailed(Exception):
    """A server did not start, or did not answer."""


class Refused(ServerFailed):
    """A server refuses a request as invalid (status 4xx)."""


class Served:
    """A running server."""

    def __init__(
        self,
        name: str,
        url: str,
        process: subprocess.Popen[bytes],
        request: Request,
        answer: Answer,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`headers` are sent with every request. Requests have no time limit."""
        self.name = name
        self.url = url
        self._process = process
        self._request = request
        self._answer = answer
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=_IDLE_SECONDS)
        self._client = httpx2.AsyncClient(timeout=None, limits=limits, trust_env=False, headers=headers)

    async def run(self, load: RequestLoad) -> Measured:
        """Send all requests at once and wait for the last answer. Raises ServerFailed."""
        bodies = [self._request(prompt, load.answer) for prompt in load.prompts]
        started = time.perf_counter()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self.ask(body)) for body in bodies]
        except* httpx2.HTTPError as errors:
            raise failure(self.name, errors.exceptions[0]) from errors
        seconds = time.perf_counter() - started
        answers = [self._answer(task.result()) for task in tasks]
        return Measured(
            seconds=seconds,
            tokens=sum(each.tokens for each in answers),
            texts=tuple(each.text for each in answers),
            asked=tuple(each.asked for each in answers),
        )

    def cpu_seconds(self) -> float:
        """Return the CPU seconds that the server's processes which still run have used so far."""
        server = psutil.Process(self._process.pid)
        times = [process.cpu_times() for process in (server, *server.children(recursive=True)) if process.is_running()]
        return sum(each.user + each.system for each in times)

    async def close(self) -> None:
        """End the process."""
        await self._client.aclose()
        end(self._process)

    async def ask(self, body: dict[str, Any]) -> dict[str, Any]:
        """Send one request and return the response's JSON. Raises httpx2.HTTPError."""
        response = await self._client.post(self.url, json=body)
        response.raise_for_status()
        document: dict[str, Any] = response.json()
        return document


def failure(name: str, error: BaseException) -> ServerFailed:
    """Return an error that names the server and says what went wrong with a request, with the server's own message."""
    if not isinstance(error, httpx2.HTTPStatusError):
        return ServerFailed(f"{name}: {error!r}")
    kind = Refused if error.response.is_client_error else ServerFailed
    return kind(f"{name}: {error!r}: {error.response.text[:_ANSWER_HEAD]}")


async def serve(
    command: Sequence[str], *, port: int, health: str, log: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a server and wait until its URL `health` answers. Raises ServerFailed.

    `environment` None stands for the environment of this process.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        variables = {**(os.environ if environment is None else environment), "GGML_NO_BACKTRACE": "1"}
        process = subprocess.Popen(  # noqa: ASYNC220, S603 (our own command; what starts it is not slow)
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=variables
        )
    try:
        await _healthy(process, f"http://127.0.0.1:{port}{health}", log)
    except BaseException:
        end(process)
        raise
    return process


def chat_request(prompt: BenchmarkPrompt, answer: int) -> dict[str, Any]:
    """Return a request to OpenAI's chat API."""
    messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
    return {"model": CHAT_MODEL, "messages": messages, "max_tokens": answer, "temperature": 0.0}


def chat_answer(body: dict[str, Any]) -> Answered:
    """Return the answer from a response of OpenAI's chat API."""
    usage = body["usage"]
    return Answered(body["choices"][0]["message"]["content"], usage["prompt_tokens"], usage["completion_tokens"])


class UsesCpu(Protocol):
    """What computes in processes of its own."""

    def cpu_seconds(self) -> float:
        """Return the CPU seconds that its processes have used so far."""


async def until_quiet(servers: Sequence[UsesCpu], seconds: float) -> bool:
    """Wait until the servers, which have no requests, have hardly computed for `seconds`, and return True.

    Returns False if they have not become quiet within MOST_QUIET_SECONDS.
    """
    end = time.monotonic() + MOST_QUIET_SECONDS
    while time.monotonic() < end:
        before = sum(server.cpu_seconds() for server in servers)
        await asyncio.sleep(seconds)
        if sum(server.cpu_seconds() for server in servers) - before <= _QUIET_SHARE * seconds:
            return True
    return False


async def _healthy(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    patience = time.monotonic() + START_SECONDS
    async with httpx2.AsyncClient(trust_env=False, timeout=10) as client:
        while time.monotonic() < patience:
            if process.poll() is not None:
                raise ServerFailed(f"{process.args!r} ended with code {process.returncode}; {log} says:\n{_tail(log)}")
            try:
                if (await client.get(url)).status_code == httpx2.codes.OK:
                    return
            except httpx2.TransportError:
                pass  # it does not listen yet
            await asyncio.sleep(_LOOK_SECONDS)
    raise ServerFailed(f"{process.args!r} was not ready after {START_SECONDS:g} s; its log is {log}")


def _tail(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL:]


def free_port() -> int:
    """Return a TCP port that no process uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and wait for its end."""
    process.kill()
    process.wait()
