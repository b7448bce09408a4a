"""Speak with the parent from inside the engine's process: blocking, on one socket."""

import select
import socket
import time

from orchestrator.engine.protocol import Command, Frames, Heartbeat, Reply, decode_command, encode

_RECEIVE = 1 << 18
_HEARTBEAT_SECONDS = 1.0


class Link:
    """The process's end of the socket. `closed` is set when the parent is gone."""

    def __init__(self, connection: socket.socket) -> None:
        self.closed = False
        self._socket = connection
        self._frames = Frames()
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._last_sent = time.monotonic()

    def receive(self, block: bool) -> list[Command]:
        """Return the commands that have arrived; `block` waits for one. Raises ProtocolError."""
        commands: list[Command] = []
        while not self.closed and self._poll.poll(None if block and not commands else 0):
            try:
                data = self._socket.recv(_RECEIVE)
            except OSError:
                data = b""
            if not data:
                self.closed = True
            commands.extend(map(decode_command, self._frames.feed(data)))
        return commands

    def send(self, replies: list[Reply]) -> None:
        """Send replies, in one piece."""
        try:
            self._socket.sendall(b"".join(map(encode, replies)))
        except OSError:
            self.closed = True
        self._last_sent = time.monotonic()

    def heartbeat(self, next_seconds: float) -> None:
        """Say that we live, if that is due: nothing was sent for a while, or nothing will be."""
        if next_seconds > _HEARTBEAT_SECONDS or time.monotonic() - self._last_sent > _HEARTBEAT_SECONDS:
            self.send([Heartbeat(next_seconds)])
