"""The daemon: open the state folder, listen, and shut down in order.

After SIGTERM or SIGINT, runs and chats in progress have `drain_seconds` to end; a second signal ends the daemon at
once. Unfinished runs continue at the next start. SIGHUP reloads the configuration and the certificate, and reopens the
log file.
"""

import asyncio
import gc
import os
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import structlog
import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from orchestrator.api.app import Attached, make_app
from orchestrator.api.auth import load_tokens, token_path
from orchestrator.api.connection import ConnectionConfig
from orchestrator.api.guard import Guard
from orchestrator.api.limiter import GenerationLimiter
from orchestrator.api.listen import TcpAddress, max_connections, tcp_address, tcp_socket, unix_socket
from orchestrator.api.logs import LoopErrors, log_to
from orchestrator.api.tls import renew, tls_context
from orchestrator.errors import InputError
from orchestrator.registry.models import Registry
from orchestrator.run.journal.home import Home
from orchestrator.service.callers import Callers
from orchestrator.service.configuration import Configuration, LogSettings, load_configuration
from orchestrator.service.service import Service
from orchestrator.service.telemetry import check_packages

CLOSING_SECONDS: Final = 3
EXTRA_CONNECTIONS: Final = 256  # more than requests: some wait between two requests, and others get an error
QUEUED_CONNECTIONS: Final = 1024  # not accepted yet
# Connections that a listener accepts in one iteration of the event loop. Each takes a fraction of a millisecond, and a
# request to the other listener waits for about ten iterations.
ACCEPTED_AT_ONCE: Final = 2
KILLED_EXIT_CODE: Final = 130

log = structlog.get_logger(__name__)


class Listener(uvicorn.Server):
    """A uvicorn server that leaves signals to `Signals`."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # asyncio accepts `backlog` connections in one go, before any of them can be closed. That number stays small, so
        # that descriptors do not run out; only the queue in the kernel becomes longer.
        for sock in sockets or ():
            sock.listen(QUEUED_CONNECTIONS)


async def serve(home: Path, registry: Registry, configuration: Configuration, attached: Attached) -> None:
    """Serve until a signal. Raises InputError for unusable settings, and JournalError for an unusable state folder."""
    address = tcp_address(configuration.server)
    tls = tls_context(configuration.server) if address is not None and address.tls else None
    place = Home(home)
    place.create()
    log_to(place.logs, configuration.logs)
    asyncio.get_running_loop().set_exception_handler(LoopErrors())
    stop = asyncio.Event()
    async with attached.service(home, registry, configuration) as service, asyncio.TaskGroup() as tasks:
        app = make_app(service, tasks, attached.endpoints)
        with Signals(service, stop, tls), ExitStack() as stack:
            sockets = unix_socket(place.socket)
            stack.callback(place.socket.unlink, missing_ok=True)
            listeners = [_listener(Guard(app, service, None, app.state.sessions), service)]
            serving = [tasks.create_task(listeners[0].serve([sockets]))]
            if address is not None:
                app.state.page_url = address.page_url
                listeners.append(_tcp(app, service, address, tls))
                serving.append(tasks.create_task(listeners[1].serve([tcp_socket(address)])))
            recording = tasks.create_task(app.state.machine_history.record(service.orchestrator.pool))
            gc.freeze()  # these objects live as long as the process: no collection has to look at them
            log.info("the daemon serves", socket=str(place.socket), tcp=address and address.url, pid=os.getpid())
            await stop.wait()
            await _drain(service, app.state.limiter)
            app.state.limiter.cancel_all()
            for listener in listeners:
                listener.should_exit = True
            recording.cancel()
            await asyncio.wait(serving)
    log.info("the daemon has ended")


class Signals:
    """A context in which signals set `stop` and reload the configuration."""

    def __init__(self, service: Service, stop: asyncio.Event, tls: ssl.SSLContext | None) -> None:
        self._service = service
        self._stop = stop
        self._tls = tls

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop)
        loop.add_signal_handler(signal.SIGHUP, self._on_reload)

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)

    def _on_stop(self) -> None:
        if self._stop.is_set():
            log.warning("the daemon ends at once; runs in progress go on at the next start")
            os._exit(KILLED_EXIT_CODE)
        self._stop.set()

    def _on_reload(self) -> None:
        try:
            configuration = load_configuration()
            if configuration.telemetry.endpoint:
                check_packages()
            address = tcp_address(configuration.server)
            if self._tls is not None and address is not None and address.tls:
                renew(self._tls, configuration.server)
        except InputError as error:
            self._log_to(self._service.configuration.logs)
            log.error("the configuration stays as it was", error=str(error))
            return
        self._log_to(configuration.logs)
        self._service.adopt(configuration)
        log.info("the configuration was read again; addresses, and TLS or none, take effect at the next start")

    def _log_to(self, settings: LogSettings) -> None:
        log_to(Home(self._service.home).logs, settings)  # reopens the file, which may have been moved away


async def _drain(service: Service, limiter: GenerationLimiter) -> None:
    seconds = service.configuration.server.drain_seconds
    log.info("the daemon is to stop", running=len(service.running), waiting=service.waiting, drain_seconds=seconds)
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as waiting:
            waiting.create_task(service.drain())
            waiting.create_task(limiter.drain())
            waiting.create_task(service.procedures.drain())
    if service.running:
        log.warning("runs in progress go on at the next start", runs=sorted(service.running))


def _listener(app: ASGIApp, service: Service, tls: ssl.SSLContext | None = None) -> Listener:
    return Listener(
        ConnectionConfig(
            app,
            lambda: service.configuration.server.body_seconds,
            lambda: max_connections(service.configuration.server.max_requests + EXTRA_CONNECTIONS),
            tls,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=ACCEPTED_AT_ONCE,
            timeout_graceful_shutdown=CLOSING_SECONDS,
        )
    )


def _tcp(app: FastAPI, service: Service, address: TcpAddress, tls: ssl.SSLContext | None) -> Listener:
    named = service.configuration.server.tokens
    tokens = load_tokens(service.home, named)

    def read_again() -> None:
        tokens.update(load_tokens(service.home, named))
        log.info("the tokens were read again", file=str(token_path(service.home)))

    service.read_tokens = read_again
    callers = Callers(service.home, service.configuration.server.callers)
    for name in named:
        if not callers.token(name, "").words:
            log.warning("a named token may do nothing; see callers of [server]", token=name)
    log.info("requests over TCP need the token", file=str(token_path(service.home)), named=sorted(filter(None, tokens)))
    return _listener(Guard(app, service, tokens, app.state.sessions, address.host), service, tls)
