"""The daemon's HTTP API in this process, for commands on a state folder without a daemon. See `client`."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from starlette.types import ASGIApp, Message, Scope

from orchestrator.api.app import make_app
from orchestrator.cli.logs import log_to
from orchestrator.cli.settings import Settings
from orchestrator.registry.load import empty_registry, find_registry, load_registry
from orchestrator.run.journal.home import Home
from orchestrator.service.callers import Access, Callers
from orchestrator.service.configuration import Configuration, RunSettings, load_configuration
from orchestrator.service.extent import Extent
from orchestrator.service.service import ended_in_order


@asynccontextmanager
async def transport_to_service(
    options: Settings, extent: Extent, *, with_registry: bool
) -> AsyncGenerator[httpx2.AsyncBaseTransport, None]:
    """Open a service in this process, and return a transport that passes requests to its API.

    Without a registry, nothing about models, roles and personas can be requested. Raises JournalError, for example
    HomeLocked while another process owns the state folder, RegistryError and InputError.
    """
    log_to(Home(options.home).logs / "orchestrator.log")
    path, configuration = find_registry(options.registry_flag), load_configuration()
    registry = load_registry(path) if with_registry else empty_registry(path)
    access = Callers(options.home, configuration.server.callers).file_owner()
    attached = options.root.attached()
    service, failure = attached.service(options.home, registry, _without_limits(configuration), extent), None
    async with ended_in_order(service), asyncio.TaskGroup() as tasks:
        # Whatever has opened something of the folder is a command of the core.
        app = make_app(service, tasks, attached.endpoints if extent is Extent.NOTHING else None)
        try:
            yield InProcessTransport(app, access, tasks)
        except Exception as error:  # noqa: BLE001 - raised below, because a task group would wrap it
            failure = error
        app.state.limiter.cancel_all()
    if failure is not None:
        raise failure


def _without_limits(configuration: Configuration) -> Configuration:
    # They protect a daemon from its callers. A user has the whole machine anyway.
    folder = configuration.folder.model_copy(update={"max_bytes": 0, "min_free_bytes": 0})
    return configuration.model_copy(update={"runs": RunSettings(), "folder": folder})


class InProcessTransport(httpx2.AsyncBaseTransport):
    """Passes requests to an ASGI application, each in a task of its own, and streams the answers.

    Unlike `httpx2.ASGITransport`, it does not wait for the end of an answer. Whoever reads the
    answer gets an error of the application.
    """

    def __init__(self, app: ASGIApp, access: Access, tasks: asyncio.TaskGroup) -> None:
        self._app = app
        self._access = access
        self._tasks = tasks

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        exchange = _Exchange(await request.aread())
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "scheme": request.url.scheme,
            "path": request.url.path,
            "raw_path": request.url.raw_path.partition(b"?")[0],
            "query_string": request.url.query,
            "server": (request.url.host, request.url.port),
            "client": None,
            "root_path": "",
            "state": {"access": self._access},
        }
        self._tasks.create_task(exchange.carry_out(self._app, scope))
        return await exchange.response()


class _Exchange(httpx2.AsyncByteStream):
    def __init__(self, body: bytes) -> None:
        self._request: Message | None = {"type": "http.request", "body": body, "more_body": False}
        self._sent: asyncio.Queue[Message | None] = asyncio.Queue()  # None after the last message
        self._closed = asyncio.Event()
        self._error: Exception | None = None

    async def carry_out(self, app: ASGIApp, scope: Scope) -> None:
        try:
            await app(scope, self._receive, self._sent.put)
        except Exception as error:  # noqa: BLE001 - whoever reads the answer raises it
            self._error = error
        finally:
            self._sent.put_nowait(None)

    async def response(self) -> httpx2.Response:
        start = await self._next()
        assert start is not None, "an application answers every request"
        return httpx2.Response(start["status"], headers=start["headers"], stream=self)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (message := await self._next()) is not None:
            if body := message.get("body"):
                yield body

    async def aclose(self) -> None:
        self._closed.set()

    async def _receive(self) -> Message:
        if self._request is not None:
            message, self._request = self._request, None
            return message
        await self._closed.wait()
        return {"type": "http.disconnect"}

    async def _next(self) -> Message | None:
        message = await self._sent.get()
        if message is None and self._error is not None:
            raise self._error
        return message
