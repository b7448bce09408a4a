"""Exchange messages with the parent process, on one blocking socket."""

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
# Text is sent at most once in this time: a message takes both processes longer than making a token's text.
_TEXT_SECONDS = 0.02


class Link:
    """The engine's end of the socket."""

    def __init__(self, connection: socket.socket) -> None:
        # `closed`: the parent has closed its end. `resting`: the parent lets the engine use no threads.
        self.closed = self.resting = False
        self._socket = connection
        self._frames = Frames()
        self._wakes = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._poll.register(self._wakes, select.POLLIN)
        # `awake_since`: when `receive` last started or stopped waiting, as time.monotonic.
        self._last_sent = self.awake_since = time.monotonic()

    def receive(self, wait: float | None) -> list[EngineCommand]:
        """Return the commands that have arrived; if there are none, wait up to `wait` seconds (None: forever).

        `wake` ends the wait. Raises ProtocolError.
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
        # In milliseconds; None: forever. While resting, it waits even if there is work, with a heartbeat every second.
        if self.resting:
            return _HEARTBEAT_MILLISECONDS
        return None if wait is None else math.ceil(wait * 1000)

    def _readable(self, patience: int | None) -> bool:
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
        """Let a waiting `receive` return. Any thread may call this."""
        os.eventfd_write(self._wakes, 1)

    def _read(self) -> list[EngineCommand]:
        try:
            data = self._socket.recv(_RECEIVE)
        except OSError:
            data = b""
        if not data:  # end of file
            self.closed = True
        return list(map(decode_command, self._frames.feed(data)))

    def send(self, replies: list[Reply]) -> None:
        try:
            self._socket.sendall(b"".join(map(encode, replies)))  # in one write
        except OSError:
            self.closed = True
        self._last_sent = time.monotonic()

    def heartbeat(self, next_seconds: float) -> None:
        """Send a heartbeat if nothing was sent for a second, or if the next `next_seconds` are more than one."""
        if next_seconds > _HEARTBEAT_SECONDS or time.monotonic() - self._last_sent > _HEARTBEAT_SECONDS:
            self.send([Heartbeat(next_seconds)])


class Outbox:
    """The replies and text of a step, which are sent in one write at its end."""

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
        """Add a piece of a sequence's text, with its `logprobs` if wanted. It is sent before the next reply."""
        self._texts[number] = self._texts.get(number, "") + text
        if logprobs:
            self._logprobs.setdefault(number, []).extend(logprobs)

    def add_thought(self, number: int, text: str) -> None:
        """Send a piece of a sequence's thoughts, before text of the same message."""
        self._thoughts[number] = self._thoughts.get(number, "") + text

    def refuse(self, number: int, error: EngineError) -> None:
        self.add(Failed(number, *format_error(error)))

    def flush(self) -> None:
        """Send what was added. Text without any reply waits until 20 ms after the last text."""
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
