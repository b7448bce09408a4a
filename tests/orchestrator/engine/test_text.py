import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engine.worker.text import TextStream


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(c % (len(data) + 1) for c in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@settings(deadline=None)
@given(st.text(max_size=30), st.lists(st.integers(0, 200), max_size=12))
def test_text_comes_out_whole_however_it_is_cut(text: str, cuts: list[int]) -> None:
    stream = TextStream(())
    pieces = [stream.push(part) for part in split(text.encode(), cuts)] + [stream.finish()]
    assert "".join(pieces) == text == stream.text
    assert "\ufffd" not in "".join(pieces).replace(text, "")


@settings(deadline=None)
@given(
    st.text("ab\u20ac", max_size=30),
    st.text("ab\u20ac", min_size=1, max_size=4),
    st.lists(st.integers(0, 99), max_size=12),
)
def test_a_stop_string_ends_the_text_and_no_part_of_it_comes_out(text: str, stop: str, cuts: list[int]) -> None:
    stream = TextStream((stop,))
    out = []
    for part in split(text.encode(), cuts):
        out.append(stream.push(part))
        if stream.stopped:
            break
    out.append(stream.finish())
    assert "".join(out) == text.split(stop)[0]
    assert stream.stopped == (stop in text)


def test_text_is_held_only_while_it_may_be_a_stop_string() -> None:
    stream = TextStream(("###",))
    assert [stream.push(b"a#"), stream.push(b"#"), stream.push(b"b")] == ["a", "", "##b"]


def test_a_character_is_held_until_its_last_byte() -> None:
    stream = TextStream(())
    assert [stream.push(bytes([b])) for b in "\u20ac".encode()] == ["", "", "\u20ac"]


@pytest.mark.parametrize("data", [b"\xff", b"\xe2\x82"])
def test_bytes_that_are_no_utf8_become_replacement_characters(data: bytes) -> None:
    stream = TextStream(())
    assert stream.push(data) + stream.finish() == "\ufffd"
