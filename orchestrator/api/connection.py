"""Speak HTTP on one connection, and close it if its client takes too long to say what it wants, or to read what it got.

Whoever reaches the port can open connections before any token is asked for, so none may stay without a request. One
that reads no more holds a place among those that are answered, and what waits for it takes memory.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from orchestrator.api.errors import error_response


class ConnectionConfig(uvicorn.Config):
    """uvicorn's settings, and how many seconds a client has for the head of a request, and to go on reading.

    Of the connections of one listener there are `most` at a time.
    """

    def __init__(
        self, app: ASGIApp, client_seconds: Callable[[], float], most: Callable[[], int], **settings: Any
    ) -> None:
        super().__init__(app, http=Connection, **settings)
        self.client_seconds = client_seconds
        self.most = most


class Connection(H11Protocol):
    """A connection. Between two requests uvicorn closes it sooner; this bounds the first head, and slow ones."""

    _late: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request, unless there are too many connections: they must not use up the descriptors."""
        super().connection_made(transport)
        if len(self.connections) > self._settings.most():
            transport.close()
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        """Take in what has come, and wait for the rest of a head, if that is what it was."""
        super().data_received(data)
        self._watch()

    def pause_writing(self) -> None:
        """Wait for the client to read: more was sent to it than buffers hold."""
        super().pause_writing()
        self._stuck = self._after(self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: it has read."""
        self._forget_stuck()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._forget()
        self._forget_stuck()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, in the shape of all errors."""
        answer = error_response(HTTPStatus.BAD_REQUEST, msg, "bad_request", {"Connection": "close"})
        for event in (
            h11.Response(status_code=HTTPStatus.BAD_REQUEST, headers=answer.raw_headers, reason=b"Bad Request"),
            h11.Data(data=bytes(answer.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget()
        elif self._late is None:
            self._late = self._after(self.transport.close)

    def _after(self, end: Callable[[], None]) -> asyncio.TimerHandle:
        return self.loop.call_later(self._settings.client_seconds(), end)

    @property
    def _settings(self) -> ConnectionConfig:
        assert isinstance(self.config, ConnectionConfig), "it makes these connections only"
        return self.config

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _forget_stuck(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None
