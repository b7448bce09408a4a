"""The engine's end of the socket, without an engine."""

import socket
import threading
from collections.abc import Iterator

import pytest

from orchestrator.engine.link import Link
from orchestrator.engine.protocol import Cancel, Command, Frames, Heartbeat, SetThreads, Stop, decode_reply, encode


@pytest.fixture
def pair() -> Iterator[tuple[Link, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(10)
    with ours, theirs:
        yield Link(ours), theirs


def _say(end: socket.socket, *commands: Command) -> None:
    end.sendall(b"".join(map(encode, commands)))


def test_without_blocking_it_returns_what_is_there(pair: tuple[Link, socket.socket]) -> None:
    link, end = pair
    assert link.receive(block=False) == []
    _say(end, Cancel(1), Cancel(2))
    assert link.receive(block=False) == [Cancel(1), Cancel(2)]


def test_the_end_of_the_parent_is_noticed(pair: tuple[Link, socket.socket]) -> None:
    link, end = pair
    _say(end, Cancel(1))
    end.close()
    assert link.receive(block=True) == [Cancel(1)]
    assert link.closed


class _Resting:
    """A link that rests in a thread of its own, as an engine does, until `result` is there."""

    def __init__(self, link: Link) -> None:
        self.result: list[Command] | None = None
        self._thread = threading.Thread(target=self._receive, args=(link,))
        self._thread.start()

    def _receive(self, link: Link) -> None:
        self.result = link.receive(block=False)

    def end(self) -> list[Command]:
        self._thread.join(10)
        assert self.result is not None
        return self.result


def test_an_engine_without_threads_rests_until_it_has_some_and_says_that_it_lives(
    pair: tuple[Link, socket.socket],
) -> None:
    link, end = pair
    _say(end, Cancel(1), SetThreads(0), Cancel(2))
    resting = _Resting(link)
    heard = [decode_reply(body) for body in Frames().feed(end.recv(100))]
    assert heard == [Heartbeat(0.0)]
    assert resting.result is None
    _say(end, Cancel(3), SetThreads(2), Cancel(4))
    assert resting.end() == [Cancel(1), Cancel(2), Cancel(3), SetThreads(2), Cancel(4)]


def test_only_the_last_word_on_threads_counts(pair: tuple[Link, socket.socket]) -> None:
    link, end = pair
    _say(end, SetThreads(0), SetThreads(3))
    assert link.receive(block=False) == [SetThreads(3)]


@pytest.mark.parametrize("how", ["stop", "close"])
def test_a_resting_engine_can_be_stopped(pair: tuple[Link, socket.socket], how: str) -> None:
    link, end = pair
    _say(end, SetThreads(0))
    resting = _Resting(link)
    if how == "stop":
        _say(end, Stop())
        assert resting.end() == [Stop()]
    else:
        end.close()
        assert resting.end() == []
        assert link.closed
