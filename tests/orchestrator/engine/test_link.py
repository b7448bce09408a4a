"""The engine's end of the socket and its outbox, without an engine."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from orchestrator.engine.errors import (
    BadGrammar,
    BadPrompt,
    BadRequest,
    BrokenModel,
    EngineError,
    PromptTooLong,
    TextTooLong,
    parse_error,
)
from orchestrator.engine.protocol import (
    Cancel,
    Counted,
    EngineCommand,
    Failed,
    Frames,
    Heartbeat,
    Reply,
    SetThreads,
    Shutdown,
    Texts,
    decode_reply,
    encode,
)
from orchestrator.engine.worker.link import Link, Outbox


@pytest.fixture
def pair() -> Iterator[tuple[Link, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(60)
    with ours, theirs:
        yield Link(ours), theirs


def _send(end: socket.socket, *commands: EngineCommand) -> None:
    end.sendall(b"".join(map(encode, commands)))


def test_without_blocking_it_returns_what_is_there(pair: tuple[Link, socket.socket]) -> None:
    link, end = pair
    assert link.receive(0.0) == []
    _send(end, Cancel(1), Cancel(2))
    assert link.receive(0.0) == [Cancel(1), Cancel(2)]


def test_resting_does_not_count_as_time_awake(pair: tuple[Link, socket.socket]) -> None:
    link, end = pair
    _send(end, SetThreads(0))
    begun = time.monotonic()
    assert link.receive(0.0) == []
    assert link.awake_since > begun + 0.9  # it rests for a second before it says that it lives


def test_the_end_of_the_parent_is_noticed(pair: tuple[Link, socket.socket]) -> None:
    link, end = pair
    _send(end, Cancel(1))
    end.close()
    assert link.receive(None) == [Cancel(1)]
    assert link.closed


def test_an_engine_without_threads_sends_heartbeats_and_takes_commands(
    pair: tuple[Link, socket.socket],
) -> None:
    link, end = pair
    _send(end, Cancel(1), SetThreads(0), Cancel(2))
    assert link.receive(0.0) == [Cancel(1), Cancel(2)]
    assert link.resting
    commands: list[EngineCommand] = []
    while not _sent_heartbeat(end):
        commands += link.receive(0.0)
    assert commands == []
    _send(end, Cancel(3))
    assert link.receive(0.0) == [Cancel(3)]
    assert link.resting
    _send(end, SetThreads(2), Cancel(4))
    assert link.receive(0.0) == [SetThreads(2), Cancel(4)]
    assert not link.resting


def _sent_heartbeat(end: socket.socket) -> bool:
    """Return whether a heartbeat has arrived, and nothing else."""
    end.setblocking(False)
    try:
        said = [decode_reply(body) for body in Frames().feed(end.recv(100))]
    except BlockingIOError:
        return False
    assert said == [Heartbeat(0.0)]
    return True


def test_only_the_last_number_of_threads_counts(pair: tuple[Link, socket.socket]) -> None:
    link, end = pair
    _send(end, SetThreads(0), SetThreads(3))
    assert link.receive(0.0) == [SetThreads(3)]


@pytest.mark.parametrize("how", ["stop", "close"])
def test_a_resting_engine_can_be_stopped(pair: tuple[Link, socket.socket], how: str) -> None:
    link, end = pair
    _send(end, SetThreads(0))
    assert link.receive(0.0) == []
    if how == "stop":
        _send(end, Shutdown())
        assert link.receive(0.0) == [Shutdown()]
        assert not link.resting
    else:
        end.close()
        assert link.receive(0.0) == []
        assert link.closed


@pytest.fixture
def outbox_pair() -> Iterator[tuple[Outbox, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with ours, theirs:
        yield Outbox(Link(ours)), theirs


def _sent(end: socket.socket) -> list[Reply]:
    try:
        data = end.recv(1 << 16)
    except BlockingIOError:
        return []
    return [decode_reply(body) for body in Frames().feed(data)]


def test_text_is_sent_before_the_replies_of_its_step_in_one_message(outbox_pair: tuple[Outbox, socket.socket]) -> None:
    outbox, end = outbox_pair
    outbox.add(Counted(7, 3))
    outbox.add_text(1, "a")
    outbox.add_text(2, "x")
    outbox.add_text(1, "b")
    outbox.flush()
    assert _sent(end) == [Texts([(1, "ab"), (2, "x")]), Counted(7, 3)]
    outbox.flush()
    assert _sent(end) == [], "nothing is sent twice"


def test_text_without_replies_waits_and_none_of_it_is_lost(
    outbox_pair: tuple[Outbox, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox, end = outbox_pair
    clock = 100.0
    monkeypatch.setattr("time.monotonic", lambda: clock)
    said = []
    for step in range(10):
        outbox.add_text(1, str(step))
        outbox.flush()
        said.append(_sent(end))
        clock += 0.006
    assert said[0] == [Texts([(1, "0")])]
    assert said[1:4] == [[], [], []]
    assert said[4] == [Texts([(1, "1234")])]
    outbox.add(Counted(7, 3))
    outbox.flush()
    assert _sent(end) == [Texts([(1, "9")]), Counted(7, 3)], "a reply takes the text that waits with it"


@pytest.mark.parametrize(
    "error",
    [
        PromptTooLong(90, 64, 5),
        TextTooLong(2, 0, 64),
        BadRequest("no"),
        BadPrompt("no"),
        BadGrammar("no"),
        BrokenModel("NaN"),
        EngineError("what"),
    ],
)
def test_the_error_of_a_failed_request_arrives_unchanged(
    outbox_pair: tuple[Outbox, socket.socket], error: EngineError
) -> None:
    outbox, end = outbox_pair
    outbox.refuse(4, error)
    outbox.flush()
    (failed,) = _sent(end)
    assert isinstance(failed, Failed)
    assert failed.seq == 4
    again = parse_error(failed.kind, failed.message, failed.numbers)
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_another_thread_ends_the_wait(pair: tuple[Link, socket.socket]) -> None:
    link, end = pair
    waker = threading.Timer(0.05, link.wake)
    waker.start()
    assert link.receive(None) == []
    waker.join()
    _send(end, Cancel(1))
    link.wake()
    assert link.receive(None) + link.receive(0.0) == [Cancel(1)]
    assert link.receive(0.0) == []
