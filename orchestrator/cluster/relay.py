"""Carry the bytes of engines between the head and a node, over a TCP connection for each engine.

The head connects to a port of the node, and sends a key first, which a call of Ray has brought there. A key opens one
connection, which is encrypted if Ray's are.
"""

import asyncio
import contextlib
import os
import socket
from typing import Final
from weakref import WeakValueDictionary

from orchestrator.cluster.tls import tls_context

KEY_BYTES: Final = 32
READ_BYTES: Final = 64 << 10
KEY_SECONDS: Final = 10.0  # for who connects to send a key
IDLE_SECONDS: Final = 30  # until the system asks whether the other end is there, before a firewall forgets it

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(host: str, port: int, key: bytes) -> Stream:
    """Connect to the engine with this key. Raises OSError, NotConnected."""
    reader, writer = await asyncio.open_connection(host, port, ssl=tls_context(os.environ))
    _keep_alive(writer)
    writer.write(key)
    return reader, writer


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send to `writer` all that `reader` gets, until one of the two is closed or fails."""
    with contextlib.suppress(OSError):
        while data := await reader.read(READ_BYTES):
            writer.write(data)
            await writer.drain()


async def carry_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Do the same, then close `writer` when it has sent everything."""
    with contextlib.closing(writer):
        await carry(reader, writer)


class Listener:
    """The port of a node at which the head connects to engines."""

    def __init__(self) -> None:
        self._engines: WeakValueDictionary[bytes, socket.socket] = WeakValueDictionary()  # by key
        self._server: asyncio.Server

    async def open(self, host: str) -> int:
        """Return the number of a port at an address of this machine, from now on. Raises OSError, NotConnected."""
        self._server = await asyncio.start_server(self._accept, host, 0, ssl=tls_context(os.environ, server=True))
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def expect(self, key: bytes, engine: socket.socket) -> None:
        """Connect an engine with whoever sends this key first. Until then, the caller has to keep and close it."""
        self._engines[key] = engine

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, EOFError):
            _keep_alive(writer)
            async with asyncio.timeout(KEY_SECONDS):
                engine = self._engines.pop(await reader.readexactly(KEY_BYTES), None)
            if engine is None:
                return
            with engine:
                out, into = await asyncio.open_connection(sock=engine.dup())
            async with asyncio.TaskGroup() as ways:
                ways.create_task(carry_and_close(reader, into))
                ways.create_task(carry_and_close(out, writer))


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_SECONDS)
