"""The limits of connections and of file descriptors."""

import asyncio
import resource
import socket
import ssl
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import structlog
from starlette.responses import PlainTextResponse

from orchestrator.api.connection import ConnectionConfig
from orchestrator.api.listen import KEPT_BACK, allow_descriptors, max_connections
from orchestrator.api.logs import LoopErrors
from orchestrator.api.serve import ACCEPTED_AT_ONCE, Listener
from tests.orchestrator.api.certificates import self_signed
from tests.orchestrator.api.daemon_process import executed, running_daemon, summary

MOST = 2
ASK = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
Caller = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def answered(caller: Caller) -> bool:
    """Send a request, and return whether an answer comes before the connection is closed."""
    reader, writer = caller
    try:
        writer.write(ASK)
        return b"200 OK" in await reader.read()
    except ConnectionError:
        return False
    finally:
        writer.close()


async def test_connections_beyond_the_limit_are_closed() -> None:
    app = PlainTextResponse("ok")
    config = ConnectionConfig(app, lambda: 60.0, lambda: MOST, ws="none", lifespan="off", log_config=None)
    listener = Listener(config)
    with socket.create_server(("127.0.0.1", 0)) as server:
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            tasks.create_task(listener.serve([server]))
            callers = [await asyncio.open_connection(*server.getsockname()) for _ in range(MOST + 1)]
            first, second, third = callers
            assert await third[0].read() == b""
            assert [await answered(first), await answered(third)] == [True, False]
            assert await answered(await asyncio.open_connection(*server.getsockname())), (
                "a connection was closed, so another one may be opened"
            )
            assert await answered(second)
            listener.should_exit = True


async def test_a_crowd_that_shakes_no_hands_is_limited_and_closed(tmp_path: Path) -> None:
    pair = self_signed(tmp_path / "pair", "own")
    server_side, client_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    server_side.load_cert_chain(pair.certificate, pair.key)
    client_side.load_verify_locations(pair.certificate)
    settings: dict[str, Any] = {"ws": "none", "lifespan": "off", "log_config": None}
    app = PlainTextResponse("ok")
    listener = Listener(ConnectionConfig(app, lambda: 1.0, lambda: MOST, server_side, **settings))
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            tasks.create_task(listener.serve([server]))
            callers = [await asyncio.open_connection(*address) for _ in range(MOST + 1)]
            assert await callers[-1][0].read() == b"", "one too many is closed at once"
            for reader, _ in callers[:-1]:
                with suppress(ConnectionError):
                    assert await reader.read() == b"", "the others have a second for the handshake"
            for _, writer in callers:
                writer.close()
            secure = await asyncio.open_connection(*address, ssl=client_side, server_hostname="localhost")
            assert await answered(secure)
            listener.should_exit = True


async def test_a_crowd_that_waits_to_be_accepted_is_taken_a_few_at_a_time() -> None:
    """A request to one listener is answered long before the crowd at the other one has been accepted."""
    crowd = 300
    settings: dict[str, Any] = {"ws": "none", "lifespan": "off", "log_config": None, "backlog": ACCEPTED_AT_ONCE}
    app = PlainTextResponse("ok")
    crowded, other = (Listener(ConnectionConfig(app, lambda: 60.0, lambda: 2 * crowd, **settings)) for _ in range(2))
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            tasks.create_task(crowded.serve([first]))
            tasks.create_task(other.serve([second]))
            assert await answered(await asyncio.open_connection(*first.getsockname())), "it listens"
            caller = await asyncio.open_connection(*second.getsockname())
            with ExitStack() as stack:
                for _ in range(crowd):  # the event loop does not run meanwhile, so that they queue
                    stack.enter_context(socket.create_connection(first.getsockname()))
                assert await answered(caller)
                assert len(crowded.server_state.connections) < crowd / 2
            crowded.should_exit = other.should_exit = True


def test_the_limit_of_descriptors_is_raised_to_the_hard_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard - 1), hard))
    try:
        allow_descriptors()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connections_of_a_listener_leave_descriptors_for_the_other_one_and_for_the_rest() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))
    try:
        most = max_connections(1256)
        assert 2 * most + KEPT_BACK <= 1024
        assert max_connections(100) == 100
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_crowd_that_sends_no_whole_head_keeps_nobody_from_the_socket(tmp_path: Path) -> None:
    """600 connections to a daemon that may open 512 descriptors, as anybody who reaches the port can make them."""
    with running_daemon(tmp_path / "home", 512) as daemon, ExitStack() as crowd:
        for _ in range(600):
            caller = crowd.enter_context(socket.create_connection(("127.0.0.1", daemon.port)))
            with suppress(OSError):  # the daemon has closed it already
                caller.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        with daemon.client() as client:
            assert client.get("/v1/pool").is_success
            assert executed(client, summary())["status"] == "done", "an engine could be started"
    log = (tmp_path / "home.log").read_text()
    assert "Too many open files" not in log


async def test_an_error_that_comes_again_is_counted() -> None:
    loop, errors = asyncio.get_running_loop(), LoopErrors()
    with structlog.testing.capture_logs() as logged:
        for _ in range(1000):
            errors(loop, {"message": "cannot accept", "exception": OSError(24, "Too many open files")})
        errors(loop, {"message": "something else"})
    assert [entry["message"] for entry in logged] == ["cannot accept", "something else"]
