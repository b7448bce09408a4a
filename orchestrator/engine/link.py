"""Speak with the parent from inside the engine's process: blocking, on one socket."""

import select
import socket
import time

from orchestrator.engine.protocol import (
    Command,
    Frames,
    Heartbeat,
    Reply,
    SetThreads,
    Stop,
    decode_command,
    encode,
)

_RECEIVE = 1 << 18
_HEARTBEAT_SECONDS = 1.0
_HEARTBEAT_MILLISECONDS = 1000


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
        """Return the commands that have arrived; `block` waits for one. Raises ProtocolError.

        With no threads to compute with (SetThreads 0) the engine rests here, between two steps, and says that it lives;
        all that has arrived is returned as soon as there are some, or it is to stop.
        """
        commands: list[Command] = []
        resting = False
        while not self.closed:
            patience = _HEARTBEAT_MILLISECONDS if resting else None if block and not commands else 0
            if self._poll.poll(patience):
                arrived = self._read()
                commands += [command for command in arrived if command != SetThreads(0)]
                for command in arrived:
                    if isinstance(command, SetThreads | Stop):
                        resting = command == SetThreads(0)
            elif not resting:
                break
            if resting:
                self.heartbeat(0.0)
        return commands

    def _read(self) -> list[Command]:
        """Read what is there: some commands, a part of one, or the end."""
        try:
            data = self._socket.recv(_RECEIVE)
        except OSError:
            data = b""
        if not data:
            self.closed = True
        return list(map(decode_command, self._frames.feed(data)))

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
