"""Serve HTTP on one connection, and close it if the client takes too long to send a request or to read the answer.

Whoever reaches the port can open connections before the token is checked, so no connection may stay open without a
request. A client that stops reading keeps its place among the requests in progress, and its answer fills memory.
"""

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from orchestrator.api.errors import error_response

HEAD_SECONDS: Final = 10.0
"""How long a client may take at most to send the head of a request, which is a few hundred bytes."""


class ConnectionConfig(uvicorn.Config):
    """uvicorn's settings, and two limits of ours, which are read whenever they are needed.

    `client_seconds` is how long a client may take to send the head of a request (`HEAD_SECONDS` at most), and how long
    it may stop reading.
    `max_connections` is how many connections one listener has at a time; further ones are closed at once. With `tls`,
    connections are encrypted. uvicorn is not told of it: it would count no connection before the end of its handshake.
    """

    def __init__(
        self,
        app: ASGIApp,
        client_seconds: Callable[[], float],
        max_connections: Callable[[], int],
        tls: ssl.SSLContext | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(app, http=Connection if tls is None else TlsConnection, **settings)
        self.client_seconds = client_seconds
        self.max_connections = max_connections
        self.tls = tls
        self.handshakes: set[TlsConnection] = set()
        """The connections whose handshake is not over."""

    @property
    def head_seconds(self) -> float:
        """How long a client may take to shake hands, and then to send the head of a request."""
        return min(HEAD_SECONDS, self.client_seconds())


def _peer_uid(transport: asyncio.Transport) -> int | None:
    """Return the user id of the process at the other end of a Unix socket, which the kernel vouches for; else None."""
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family != socket.AF_UNIX:
        return None
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(uid)


class Connection(H11Protocol):
    """A connection with time limits. uvicorn itself limits only how long it stays open between two requests."""

    _head_timer: asyncio.TimerHandle | None = None
    """Closes the connection, unless the head of a request comes before."""
    _read_timer: asyncio.TimerHandle | None = None
    """Aborts the connection, unless the client reads before."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request, or close where there are too many connections: each takes a file descriptor."""
        super().connection_made(transport)
        if (uid := _peer_uid(transport)) is not None:
            self.app_state = {**self.app_state, "uid": uid}
        if len(self.connections) + len(self._settings.handshakes) > self._settings.max_connections():
            transport.close()
        else:
            self._watch_head()

    def data_received(self, data: bytes) -> None:
        """Take in data of the client, and wait for the rest of the head of a request where only a part of it came."""
        super().data_received(data)
        self._watch_head()

    def pause_writing(self) -> None:
        """Limit how long the client may take to read, now that the buffers are full."""
        super().pause_writing()
        self._read_timer = self.loop.call_later(self._settings.client_seconds(), self.transport.abort)

    def resume_writing(self) -> None:
        """Send on, because the client has read."""
        self._stop_read_timer()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._stop_head_timer()
        self._stop_read_timer()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer data that is not HTTP with an `ErrorBody`."""
        response = error_response(HTTPStatus.BAD_REQUEST, msg, "bad_request", {"Connection": "close"})
        for event in (
            h11.Response(status_code=HTTPStatus.BAD_REQUEST, headers=response.raw_headers, reason=b"Bad Request"),
            h11.Data(data=bytes(response.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _watch_head(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_head_timer()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self._settings.head_seconds, self.transport.close)

    @property
    def _settings(self) -> ConnectionConfig:
        assert isinstance(self.config, ConnectionConfig), "no other configuration names this class"
        return self.config

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None


class TlsConnection(Connection):
    """An encrypted connection, which counts and has a limited time from the moment on at which it is there."""

    _secure = False
    _early = b""
    """What the client has sent before this connection knew that the handshake was over."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Shake hands, or close where there are too many connections."""
        settings = self._settings
        if len(self.connections) + len(settings.handshakes) >= settings.max_connections():
            transport.close()
            return
        transport.pause_reading()
        settings.handshakes.add(self)
        task = self.loop.create_task(self._shake_hands(transport))
        self.tasks.add(task)  # uvicorn waits for these when it ends
        task.add_done_callback(self.tasks.discard)

    async def _shake_hands(self, transport: asyncio.Transport) -> None:
        settings = self._settings
        assert settings.tls is not None, "without it, connections are plain ones"
        seconds = settings.head_seconds
        try:
            secure = await self.loop.start_tls(
                transport, self, settings.tls, server_side=True, ssl_handshake_timeout=seconds
            )
        except (OSError, ssl.SSLError):  # it is closed: TimeoutError and ConnectionError are OSErrors
            return
        finally:
            settings.handshakes.discard(self)
        if secure is None or secure.is_closing():
            return
        self._secure = True
        super().connection_made(secure)
        if self._early:
            super().data_received(self._early)

    def data_received(self, data: bytes) -> None:
        """Take in data of the client, which may come in the moment in which the handshake ends."""
        if self._secure:
            super().data_received(data)
        else:
            self._early += data

    def eof_received(self) -> None:
        """Do nothing before the end of the handshake."""
        if self._secure:
            super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers, if the connection was used at all."""
        if self._secure:
            super().connection_lost(exc)
