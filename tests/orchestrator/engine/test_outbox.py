"""What the engine has to say in a step, on a socket without an engine."""

import socket
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
    reported,
)
from orchestrator.engine.protocol import Counted, Failed, Frames, Reply, Texts, decode_reply
from orchestrator.engine.worker.link import Link
from orchestrator.engine.worker.outbox import Outbox


@pytest.fixture
def pair() -> Iterator[tuple[Outbox, socket.socket]]:
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


def test_text_comes_before_the_replies_of_its_step_and_in_one_piece(pair: tuple[Outbox, socket.socket]) -> None:
    outbox, end = pair
    outbox.add(Counted(7, 3))
    outbox.say(1, "a")
    outbox.say(2, "x")
    outbox.say(1, "b")
    outbox.flush()
    assert _sent(end) == [Texts([(1, "ab"), (2, "x")]), Counted(7, 3)]
    outbox.flush()
    assert _sent(end) == [], "nothing is said twice"


def test_text_alone_waits_for_its_turn_and_none_of_it_is_lost(
    pair: tuple[Outbox, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox, end = pair
    clock = 100.0
    monkeypatch.setattr("time.monotonic", lambda: clock)
    said = []
    for step in range(10):
        outbox.say(1, str(step))
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
def test_a_refusal_says_what_the_error_was(pair: tuple[Outbox, socket.socket], error: EngineError) -> None:
    outbox, end = pair
    outbox.refuse(4, error)
    outbox.flush()
    (failed,) = _sent(end)
    assert isinstance(failed, Failed)
    assert failed.seq == 4
    again = reported(failed.kind, failed.message, failed.numbers)
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
