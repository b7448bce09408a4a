import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engine.contract import EngineSpec, Generation, Message
from orchestrator.engine.protocol import (
    VERSION,
    EngineCommand,
    Finished,
    Frames,
    Load,
    Prompts,
    ProtocolError,
    Reply,
    Submit,
    Texts,
    decode_command,
    decode_reply,
    encode,
)

GENERATION = Generation(messages=(Message("user", "h\u00e9"),), stop=("x",), temperature=0.5, seed=2**64 - 1)
MESSAGES: list[EngineCommand] = [Load(VERSION, EngineSpec(file="a.gguf", context=7)), Submit(3, GENERATION, True)]


@settings(deadline=None)
@given(st.lists(st.integers(0, 400), max_size=6))
def test_commands_survive_however_the_stream_is_cut(cuts: list[int]) -> None:
    data = b"".join(map(encode, MESSAGES))
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    frames = Frames()
    bodies = [body for a, b in zip(edges, edges[1:], strict=False) for body in frames.feed(data[a:b])]  # noqa: RUF007
    assert [decode_command(body) for body in bodies] == MESSAGES


def test_replies_survive() -> None:
    replies: list[Reply] = [
        Prompts([(2, 0), (3, 1)], [(1, 300, 660)]),
        Texts([(1, "a"), (2, "\U0001f600")]),
        Finished(1, "t", "stop", 1, 2, 3, 0.1, 0.2, 0.3),
    ]
    bodies = Frames().feed(b"".join(map(encode, replies)))
    assert [decode_reply(body) for body in bodies] == replies


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_nonsense_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_reply(b"\xc1" + data)


def test_an_impossible_length_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        list(Frames().feed(b"\xff\xff\xff\xff"))
