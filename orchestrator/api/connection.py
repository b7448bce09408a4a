"""Serve HTTP on one connection, and close it if the client takes too long to send a request or to read the answer.

Connections need no token, so none may stay open without a request. A client that stops reading occupies a place among
the requests in progress, and its answer fills memory.
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

HEAD_SECONDS: Final = 10.0  # the most for the head of a request, which has a few hundred bytes


class ConnectionConfig(uvicorn.Config):
    """uvicorn's settings, and two limits of our own, which are read at each use.

    `client_seconds` limits the time for the head of a request (`HEAD_SECONDS` at most), and for a pause in reading.
    `max_connections` is the limit of one listener; further connections are closed at once.
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
        self.tls = tls  # uvicorn does not get it: it would not count connections during their handshake
        self.handshakes: set[TlsConnection] = set()  # connections whose handshake is not over

    @property
    def head_seconds(self) -> float:
        """The limit for the TLS handshake, and then for the head of a request."""
        return min(HEAD_SECONDS, self.client_seconds())


def _peer_uid(transport: asyncio.Transport) -> int | None:
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family != socket.AF_UNIX:
        return None
    # The kernel vouches for these: pid, uid and gid of the process at the other end.
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(uid)


class Connection(H11Protocol):
    """A connection with time limits. uvicorn itself limits only the time between two requests."""

    _head_timer: asyncio.TimerHandle | None = None  # closes the connection unless the head of a request comes
    _read_timer: asyncio.TimerHandle | None = None  # aborts the connection unless the client reads

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if (uid := _peer_uid(transport)) is not None:
            self.app_state = {**self.app_state, "uid": uid}
        # Each connection takes a file descriptor.
        if len(self.connections) + len(self._settings.handshakes) > self._settings.max_connections():
            transport.close()
        else:
            self._watch_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_head()  # the data may be only a part of a head

    def pause_writing(self) -> None:
        # The buffers are full: from now on the client has to read.
        super().pause_writing()
        self._read_timer = self.loop.call_later(self._settings.client_seconds(), self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_read_timer()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._stop_read_timer()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        # uvicorn would answer with plain text instead of an `ErrorBody`.
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
    """An encrypted connection. It counts, and its time is limited, from the start of its handshake."""

    _secure = False
    _early = b""  # can arrive at the end of the handshake, before `start_tls` returns

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
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
        if self._secure:
            super().data_received(data)
        else:
            self._early += data

    def eof_received(self) -> None:
        if self._secure:
            super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._secure:  # else the base class has never had this connection
            super().connection_lost(exc)
