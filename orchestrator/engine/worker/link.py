"""Exchange messages with the parent from inside the engine's process, on one blocking socket."""

import math
import os
import select
import socket
import time
from collections.abc import Sequence

from orchestrator.engine.contract import TokenLogprob
from orchestrator.engine.errors import EngineError, format_error
from orchestrator.engine.protocol import (
    EngineCommand,
    Failed,
    Frames,
    Heartbeat,
    Reply,
    SetThreads,
    Shutdown,
    Texts,
    decode_command,
    encode,
)

_RECEIVE = 1 << 18
_HEARTBEAT_SECONDS = 1.0
_HEARTBEAT_MILLISECONDS = 1000
_TEXT_SECONDS = 0.02
"""Pieces of text are sent at most once in this time: sending and receiving a message takes both processes longer than
making the text of a token."""


class Link:
    """The engine's end of the socket.

    `closed` becomes true when the parent has closed its end. `resting` is true while the parent lets the engine use no
    threads. `awake_since` is when the last call of `receive` began, or when it last stopped waiting, as a time of
    time.monotonic.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.closed = self.resting = False
        self._socket = connection
        self._frames = Frames()
        self._wakes = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._poll.register(self._wakes, select.POLLIN)
        self._last_sent = self.awake_since = time.monotonic()

    def receive(self, wait: float | None) -> list[EngineCommand]:
        """Return the commands that have arrived. If there are none, wait up to `wait` seconds for one; None: for ever.

        It stops waiting when a thread calls `wake`.
        While the engine is `resting` (after SetThreads 0) it waits for commands even if it has work: at most one
        second, after which it sends a heartbeat and returns no commands. Raises ProtocolError.
        """
        commands: list[EngineCommand] = []
        self.awake_since = time.monotonic()
        while not self.closed and self._readable(0 if commands else self._patience(wait)):
            for command in self._read():
                if isinstance(command, SetThreads | Shutdown):
                    self.resting = command == SetThreads(0)
                if command != SetThreads(0):
                    commands.append(command)
        if self.resting:
            self.heartbeat(0.0)
        return commands

    def _patience(self, wait: float | None) -> int | None:
        """Return how many milliseconds to wait for a command; None for ever."""
        if self.resting:
            return _HEARTBEAT_MILLISECONDS
        return None if wait is None else math.ceil(wait * 1000)

    def _readable(self, patience: int | None) -> bool:
        """Wait up to `patience` milliseconds for something to read, and return whether there is anything."""
        ready = self._poll.poll(patience)
        if patience != 0:
            self.awake_since = time.monotonic()
        if not ready:  # as in most steps
            return False
        events = {descriptor for descriptor, _ in ready}
        if self._wakes in events:
            os.eventfd_read(self._wakes)
        return bool(events - {self._wakes})

    def wake(self) -> None:
        """Let `receive` return, if it waits. Any thread may call this."""
        os.eventfd_write(self._wakes, 1)

    def _read(self) -> list[EngineCommand]:
        """Read what has arrived and return the commands that are complete by now. Sets `closed` at the end of file."""
        try:
            data = self._socket.recv(_RECEIVE)
        except OSError:
            data = b""
        if not data:
            self.closed = True
        return list(map(decode_command, self._frames.feed(data)))

    def send(self, replies: list[Reply]) -> None:
        """Send replies in one write."""
        try:
            self._socket.sendall(b"".join(map(encode, replies)))
        except OSError:
            self.closed = True
        self._last_sent = time.monotonic()

    def heartbeat(self, next_seconds: float) -> None:
        """Send a heartbeat if nothing was sent for a second, or nothing will be for the `next_seconds` seconds."""
        if next_seconds > _HEARTBEAT_SECONDS or time.monotonic() - self._last_sent > _HEARTBEAT_SECONDS:
            self.send([Heartbeat(next_seconds)])


class Outbox:
    """The replies and the pieces of text of a step, which are sent in one write at its end."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._texts: dict[int, str] = {}
        self._thoughts: dict[int, str] = {}
        self._logprobs: dict[int, list[TokenLogprob]] = {}
        self._texts_due = 0.0
        self._replies: list[Reply] = []

    def add(self, reply: Reply) -> None:
        """Send a reply with the next `flush`."""
        self._replies.append(reply)

    def add_text(self, number: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> None:
        """Send a piece of a sequence's text: at the latest with the next reply, and before it.

        `logprobs` has its tokens, where the request wants to know how likely they were.
        """
        self._texts[number] = self._texts.get(number, "") + text
        if logprobs:
            self._logprobs.setdefault(number, []).extend(logprobs)

    def add_thought(self, number: int, text: str) -> None:
        """Send a piece of a sequence's thoughts, as `add_text` does, and before text of the same message."""
        self._thoughts[number] = self._thoughts.get(number, "") + text

    def refuse(self, number: int, error: EngineError) -> None:
        """Answer a request with the error that it failed with."""
        self.add(Failed(number, *format_error(error)))

    def flush(self) -> None:
        """Send what was added. Pieces of text without any reply wait until the last ones are 20 milliseconds old."""
        if (self._texts or self._thoughts) and (self._replies or time.monotonic() >= self._texts_due):
            logprobs = list(self._logprobs.items())
            self._replies.insert(0, Texts(list(self._texts.items()), list(self._thoughts.items()), logprobs))
            self._logprobs = {}
            self._texts.clear()
            self._thoughts.clear()
            self._texts_due = time.monotonic() + _TEXT_SECONDS
        if self._replies:
            self._link.send(self._replies)
            self._replies = []
