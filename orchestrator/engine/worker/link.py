"""Speak with the parent from inside the engine's process: blocking, on one socket."""

import math
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
    """The process's end of the socket. `closed` is set when the parent is gone, `resting` while it gives no threads.

    `awake_since` is when `receive` was called last, or when it last stopped waiting in there.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.closed = self.resting = False
        self._socket = connection
        self._frames = Frames()
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._last_sent = self.awake_since = time.monotonic()

    def receive(self, wait: float | None) -> list[Command]:
        """Return the commands that have arrived; wait for one for so many seconds, None for as long as it takes.

        Raises ProtocolError.

        With no threads to compute with (SetThreads 0) the engine is `resting`: it waits for commands even if it has
        work, and returns without any once a second, after it has said that it lives.
        """
        commands: list[Command] = []
        self.awake_since = time.monotonic()
        while not self.closed and self._readable(0 if commands else self._patience(wait)):
            for command in self._read():
                if isinstance(command, SetThreads | Stop):
                    self.resting = command == SetThreads(0)
                if command != SetThreads(0):
                    commands.append(command)
        if self.resting:
            self.heartbeat(0.0)
        return commands

    def _patience(self, wait: float | None) -> int | None:
        """Return for how many milliseconds to wait for a command; None for as long as it takes."""
        if self.resting:
            return _HEARTBEAT_MILLISECONDS
        return None if wait is None else math.ceil(wait * 1000)

    def _readable(self, patience: int | None) -> bool:
        """Return whether there is something to read, within so many milliseconds."""
        events = self._poll.poll(patience)
        if patience != 0:
            self.awake_since = time.monotonic()
        return bool(events)

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
