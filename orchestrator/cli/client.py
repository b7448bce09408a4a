"""Speak the HTTP API: with the daemon of a state folder, or without one with the same application in this process."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from http import HTTPStatus
from pkgutil import resolve_name
from typing import Any, Final, Self, cast

import httpx2

from orchestrator.cli.daemon import (
    BASE,
    WAIT_FOREVER,
    answers,
    connection_errors,
    encoded,
    read_answer,
    refuse_other,
)
from orchestrator.cli.settings import Settings
from orchestrator.run.journal.home import Home
from orchestrator.service.extent import Extent

# Imported only without a daemon, because the API and the service are large.
IN_PROCESS: Final = "orchestrator.cli.in_process:transport_to_service"


class Client:
    """Sends requests to the API. An async context manager.

    If no daemon answers, this process serves itself, and opens the state folder as far as `extent` says. Every call
    raises DaemonRefused, InputError, and with a daemon NoDaemon and DaemonGone. Without one, entering or leaving raises
    JournalError, for example HomeLocked while another process owns the state folder, and RegistryError.
    """

    def __init__(self, options: Settings, extent: Extent = Extent.RUNS, *, with_registry: bool = True) -> None:
        self._options = options
        self._extent = extent
        self._with_registry = with_registry
        self._stack = AsyncExitStack()
        self.has_daemon = False  # whether a daemon answers, from when this is entered

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self.has_daemon = answers(self._options.home)
            transport = await stack.enter_async_context(self._transport())
            client = httpx2.AsyncClient(transport=transport, base_url=BASE, timeout=WAIT_FOREVER)
            self.http = await stack.enter_async_context(client)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.__aexit__(*error)

    def _transport(self) -> AbstractAsyncContextManager[httpx2.AsyncBaseTransport]:
        if self.has_daemon:
            return nullcontext(httpx2.AsyncHTTPTransport(uds=str(Home(self._options.home).socket)))
        opened = resolve_name(IN_PROCESS)(self._options, self._extent, with_registry=self._with_registry)
        return cast(AbstractAsyncContextManager[httpx2.AsyncBaseTransport], opened)

    async def ask(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        """Send a request, and return the JSON object of the answer: {} if it has no content."""
        with connection_errors(self._options.home):
            return read_answer(await self.http.request(method, path, **encoded(more)))

    async def check_registry(self) -> None:
        """Raises InputError if the daemon uses another registry than the one of the options."""
        ours = self._options.registry_flag
        if ours is not None and self.has_daemon:
            refuse_other((await self.ask("GET", "/v1/registry"))["path"], ours, self._options.home)

    async def events(self, path: str, query: Mapping[str, Any]) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """Yield the name and the data of each server-sent event, until the stream ends."""
        with connection_errors(self._options.home):
            async with self.http.stream("GET", path, params=dict(query)) as response:
                async for message in messages(response):
                    yield message.event, json.loads(message.data)


def ask(
    options: Settings,
    method: str,
    path: str,
    *,
    extent: Extent = Extent.JOURNAL,
    with_registry: bool = False,
    **more: Any,
) -> dict[str, Any]:
    """Send one request, and return the JSON object of the answer. Raises what `Client` raises."""

    async def send() -> dict[str, Any]:
        async with Client(options, extent, with_registry=with_registry) as client:
            return await client.ask(method, path, **more)

    return asyncio.run(send())


async def messages(response: httpx2.Response) -> AsyncGenerator[httpx2.ServerSentEvent, None]:
    """Yield the server-sent events of an answer. Raises what `read_answer` raises for another answer."""
    if response.status_code != HTTPStatus.OK:
        await response.aread()
        read_answer(response)
    # A plan, or what a step has written, may be of any length.
    async for message in httpx2.EventSource(response, max_event_size=None):
        yield message
