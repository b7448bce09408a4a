"""The limits of connections and of file descriptors."""

import asyncio
import resource
import socket

from starlette.responses import PlainTextResponse

from orchestrator.api.connection import ConnectionConfig
from orchestrator.api.listen import allow_descriptors
from orchestrator.api.serve import Listener

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


def test_the_limit_of_descriptors_is_raised_to_the_hard_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard - 1), hard))
    try:
        allow_descriptors()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
