"""Run an engine's loop in a thread of the test, so that a test can act between its steps."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from orchestrator.engine.contract import EngineSpec, Generation
from orchestrator.engine.llama import Llama, Logits, SpinSwitch
from orchestrator.engine.protocol import (
    Cancel,
    EngineCommand,
    Finished,
    Frames,
    GetStats,
    Hurry,
    Reply,
    Shutdown,
    Stats,
    Submit,
    decode_reply,
    encode,
)
from orchestrator.engine.speculation.speculator import make_speculator
from orchestrator.engine.worker.link import Link
from orchestrator.engine.worker.loop import Loop
from orchestrator.engine.worker.spinning import Spinning

PATIENCE_SECONDS = 100.0


class Parent:
    """The parent's end of a loop's socket. Any thread may submit; replies are for the test's own."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._frames = Frames()
        self._replies: list[Reply] = []
        self._number = 0
        self._sending = threading.Lock()
        self._closed = False

    def submit(self, request: Generation) -> int:
        """Ask for a text, and return the number of the request."""
        with self._sending:
            self._number += 1
            self._send(Submit(self._number, request, False))
            return self._number

    def cancel(self, number: int) -> None:
        with self._sending:
            self._send(Cancel(number))

    def hurry(self, number: int) -> None:
        with self._sending:
            self._send(Hurry(number))

    def shut_down(self) -> None:
        """Let the loop end as a stopped engine does: it stores system prompts."""
        with self._sending:
            self._send(Shutdown())

    def close(self) -> None:
        """End the loop. It may take some more steps: what it submits before them is dropped."""
        with self._sending:
            self._closed = True
            self._socket.close()

    def finished(self) -> Finished:
        """Return the next text that is finished."""
        while True:
            if isinstance(reply := self._next(), Finished):
                return reply

    def stats(self) -> Stats:
        """Return what the loop counts; replies that come before are dropped."""
        self.ask_stats()
        return self.next_stats()

    def ask_stats(self) -> None:
        """Ask what the loop counts after its current step."""
        with self._sending:
            self._send(GetStats(0))

    def next_stats(self) -> Stats:
        while True:
            if isinstance(reply := self._next(), Stats):
                return reply

    def _send(self, command: EngineCommand) -> None:
        if not self._closed:
            self._socket.sendall(encode(command))

    def _next(self) -> Reply:
        while not self._replies:
            data = self._socket.recv(1 << 16)
            assert data, "the loop has ended"
            self._replies += map(decode_reply, self._frames.feed(data))
        return self._replies.pop(0)


@contextmanager
def driven_loop(
    llama: Llama,
    spec: EngineSpec,
    before_step: Callable[[Parent], None] = lambda _: None,
    spinning: Spinning | None = None,
) -> Iterator[Parent]:
    """Run a loop on a loaded model until the block ends. `before_step` is called in its thread before each decode."""
    mine, theirs = socket.socketpair()
    theirs.settimeout(PATIENCE_SECONDS)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)  # for what is sent before the loop reads anything
    parent, decode = Parent(theirs), llama.decode

    def step(width: int = 0) -> Logits:
        before_step(parent)
        return decode(width)

    def run() -> None:
        with mine:
            speculator = make_speculator(llama, spec, lambda _: None)
            Loop(llama, spec, Link(mine), speculator, spinning or Spinning(SpinSwitch())).run()

    llama.decode = step  # type: ignore[method-assign]
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield parent
    finally:
        parent.close()
        thread.join(PATIENCE_SECONDS)
        del llama.decode
