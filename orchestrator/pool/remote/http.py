"""Send requests to a server over HTTP. Only this file uses the HTTP library and the API key.

The key is read from the environment for each request, stored nowhere, and removed from the server's messages.
"""

import asyncio
import math
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final, cast

import httpx2
import msgspec

from orchestrator.engine.errors import EngineError
from orchestrator.pool.remote.errors import RemoteFailed, RemoteRefused
from orchestrator.pool.remote.wire import (
    Chunk,
    InvalidChunk,
    ServerProblem,
    WireRequest,
    error_of,
    one_line,
    read_chunk,
    read_problem,
    status_of,
)
from orchestrator.registry.checks import why_no_key
from orchestrator.registry.models import Endpoint

TRIES: Final = 4  # including the first
FIRST_PAUSE: Final = 0.5  # seconds between the first two tries at most
LONGEST_PAUSE: Final = 8.0  # seconds at most, plus what the server asks for
PATIENCE: Final = 30.0  # If a server asks for more seconds, the request fails at once, and the caller decides.


def pause(tries: int, server_seconds: float | None, chance: float) -> float | None:
    """Return the seconds to wait after `tries` failed tries, or None to give up.

    Exponential backoff with full jitter: `chance` in [0, 1) of a pause that doubles with each try, plus the
    `server_seconds` that the server asked for.
    """
    if tries >= TRIES or (server_seconds or 0.0) > PATIENCE:
        return None
    # The jitter keeps the clients of one server from returning at the same moment.
    return (server_seconds or 0.0) + chance * min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (tries - 1))


def retry_after(header: str | None, now: datetime) -> float | None:
    """Return the seconds of a Retry-After header (RFC 9110, 10.2.3); None if it is absent or invalid."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        return _until(header, now)
    return seconds if 0 <= seconds < math.inf else None


def _until(date: str, now: datetime) -> float | None:
    try:
        when = parsedate_to_datetime(date)
    except ValueError:
        return None
    return max(0.0, ((when if when.tzinfo else when.replace(tzinfo=UTC)) - now).total_seconds())


CONNECT_SECONDS: Final = 10.0
PROBE_SECONDS: Final = 5.0  # for each phase of `probe`
MAX_EVENT: Final = 1 << 20  # bytes of one event of a stream
EVENTS_IN_A_ROW: Final = 64  # then other tasks get their turn
MAX_ERROR: Final = 1 << 16  # bytes read of an error's body
NO_CLIENT: Final = (ImportError, ValueError)  # raised if the environment names an unusable proxy
END: Final = "[DONE]"  # data of the last event
HEADERS: Final = {"Content-Type": "application/json", "Accept": "text/event-stream", "Accept-Encoding": "identity"}


class _Key(httpx2.Auth):
    def __init__(self, variable: str | None) -> None:
        self._variable = variable

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        if self._variable is not None:
            request.headers["Authorization"] = f"Bearer {os.environ[self._variable]}"
        yield request


class Server:
    """The connections to one OpenAI-compatible server. Use it from one event loop, and `close` it.

    `where` names the model and the server in messages.
    """

    def __init__(self, model: str, endpoint: Endpoint) -> None:
        self.where = f"model {model} at {endpoint.base_url}"
        self._endpoint = endpoint
        self._client: httpx2.AsyncClient | None = None

    async def chunks(self, request: WireRequest) -> AsyncGenerator[Chunk, None]:
        """Send a request and yield the chunks of the answer. Closing the generator closes the connection.

        Raises RemoteError, RemoteRefused, RemotePromptTooLong, BadGrammar.
        """
        if reason := self._why_no_key():
            raise RemoteRefused(f"{self.where}: {reason}")
        url = f"{self._endpoint.base_url}/chat/completions"
        try:
            client = self._connected()
        except NO_CLIENT as error:
            raise RemoteFailed(f"{self.where}: cannot be reached: {_format_error(error, self._endpoint)}") from None
        try:
            async with client.stream("POST", url, content=request.body, headers=HEADERS) as response:
                if response.status_code != HTTPStatus.OK:
                    raise await self._error_response(response, request)
                async with aclosing(_events(response)) as events:
                    ended, size, count = False, 0, 0
                    async for event in events:
                        size, count = size + len(event.data), count + 1
                        if size > request.max_json:
                            excess = f"sent {size} bytes for an answer of at most {request.max_tokens} tokens"
                            raise RemoteFailed(f"{self.where}: {excess}; accepted: at most {request.max_json}")
                        if count % EVENTS_IN_A_ROW == 0:
                            await asyncio.sleep(0)  # what has arrived already is read without ever waiting
                        ended = ended or event.data == END
                        if event.data and not ended:  # the rest is read too, so that the connection can be reused
                            yield self._chunk(event.data, request)
        except httpx2.RequestError as error:
            raise self._connection_error(error) from None  # the original may hold the API key

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    def _connected(self) -> httpx2.AsyncClient:
        if self._client is None:
            seconds = self._endpoint.timeout_seconds
            self._client = httpx2.AsyncClient(
                auth=_Key(self._endpoint.api_key_env),
                timeout=httpx2.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS), pool=None),
                limits=httpx2.Limits(max_connections=None),
                trust_env=not self._endpoint.is_local,  # no proxy stands before this machine
            )
        return self._client

    def _chunk(self, data: str, request: WireRequest) -> Chunk:
        try:
            chunk = read_chunk(data)
        except InvalidChunk as error:
            raise RemoteFailed(f"{self.where}: sent an invalid piece of an answer: {error}") from error
        if chunk.problem is not None:
            raise self._error(status_of(chunk.problem), chunk.problem, request)
        return chunk

    async def _error_response(self, response: httpx2.Response, request: WireRequest) -> EngineError:
        body = bytearray()
        with suppress(httpx2.RequestError):  # the part that has arrived is enough
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > MAX_ERROR:
                    break
        wait = retry_after(response.headers.get("retry-after"), datetime.now(UTC))
        return self._error(response.status_code, read_problem(bytes(body)), request, wait)

    def _error(
        self, status: int, problem: ServerProblem, request: WireRequest, wait: float | None = None
    ) -> EngineError:
        redacted = msgspec.structs.replace(problem, message=_redacted(problem.message or "", self._endpoint))
        error = error_of(self.where, status, redacted, request, wait)
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            variable = self._endpoint.api_key_env
            hint = f"the key in {variable}" if variable else "no key was sent, since the registry has no api_key_env"
            return RemoteRefused(f"{error}; {hint}", status)
        return error

    def _connection_error(self, error: httpx2.RequestError) -> RemoteFailed:
        reason = _format_error(error, self._endpoint)
        match error:
            case httpx2.ConnectError() | httpx2.ConnectTimeout():
                return RemoteFailed(f"{self.where}: cannot be reached: {reason}", passing=True)
            case httpx2.TimeoutException():
                seconds = self._endpoint.timeout_seconds
                return RemoteFailed(f"{self.where}: was silent for {seconds:g} s; accepted: a longer timeout_seconds")
            case httpx2.NetworkError() | httpx2.RemoteProtocolError() | httpx2.ProxyError():
                return RemoteFailed(f"{self.where}: the connection broke: {reason}", passing=True)
        return RemoteFailed(f"{self.where}: {reason}")

    def _why_no_key(self) -> str | None:
        variable = self._endpoint.api_key_env
        return None if variable is None else why_no_key(variable, os.environ)


def probe(endpoint: Endpoint) -> str | None:
    """Request a server's list of models, and return why the server cannot be used, or None. Blocks for seconds."""
    key, proxied = _Key(endpoint.api_key_env), not endpoint.is_local
    try:
        with httpx2.Client(auth=key, timeout=PROBE_SECONDS, trust_env=proxied) as client:
            with client.stream("GET", f"{endpoint.base_url}/models") as response:
                status = response.status_code
    except (httpx2.RequestError, *NO_CLIENT) as error:
        return f"cannot be reached: {_format_error(error, endpoint)}"
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        variable = endpoint.api_key_env
        return f"HTTP {status}: {f'refuses the key in {variable}' if variable else 'wants a key'}"
    return f"HTTP {status}" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else None


def _format_error(error: Exception, endpoint: Endpoint) -> str:
    return one_line(_redacted(str(error), endpoint)) or type(error).__name__


def _redacted(text: str, endpoint: Endpoint) -> str:
    key = os.environ.get(endpoint.api_key_env or "")
    return text.replace(key, "[API key]") if key else text


def _events(response: httpx2.Response) -> AsyncGenerator[httpx2.ServerSentEvent, None]:
    # The library does not declare that this is a generator, which can be closed.
    return cast(AsyncGenerator[httpx2.ServerSentEvent, None], aiter(httpx2.EventSource(response, MAX_EVENT)))
