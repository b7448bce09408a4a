"""The limits of JSON texts before they are parsed, and half surrogate pairs in them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.task.taskir.json_size import (
    MAX_CONTAINERS,
    MAX_KEYS,
    MAX_LEVELS,
    MAX_STRINGS,
    MAX_VALUES,
    has_half_surrogate,
    json_excess,
    with_whole_characters,
)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
)
units = st.text(st.characters(categories=["Cs", "L"]) | st.sampled_from(['"', "\\", "u", "\n", "😀"]))


@given(values)
def test_json_of_usual_size_exceeds_nothing(value: object) -> None:
    assert json_excess(json.dumps(value).encode()) is None


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"[" * 200 + b"]" * 200, "is nested more than 128 levels deep"),
        (b'{"a":' * 200 + b"1" + b"}" * 200, "is nested more than 128 levels deep"),
        (b"[" + b"[]," * MAX_CONTAINERS + b"1]", f"has {MAX_CONTAINERS + 1} lists and objects"),
        (b"[" + b"1," * 2 * MAX_VALUES + b"1]", f"has {2 * MAX_VALUES + 1} values"),
        (b"[" + b'"",' * 2 * MAX_STRINGS + b"1]", f"has {2 * MAX_STRINGS} texts and keys"),
        (b"{" + b'"a":1,' * (MAX_KEYS + 9) + b'"a":1}', f"has {MAX_KEYS + 10} keys of objects"),
        (b"[" * 1_000_000, "has 1000000 lists and objects"),
    ],
)
def test_what_is_too_much_is_named(text: bytes, what: str) -> None:
    problem = json_excess(text)
    assert problem is not None
    assert what in problem.what
    assert problem.accepted.startswith("at most ")
    assert problem.is_depth is ("deep" in what)


@pytest.mark.parametrize("text", [b",:" * MAX_VALUES * 2, b"[{" * MAX_CONTAINERS, b'\\"[\\\\' * MAX_CONTAINERS])
def test_what_strings_hold_does_not_count(text: bytes) -> None:
    assert json_excess(b'{"a":"' + text + b'","b":[1,2]}') is None


def test_lists_beside_each_other_are_not_deep() -> None:
    assert json_excess(b"[" + b"[]," * 2 * MAX_LEVELS + b"1]") is None


@given(units)
def test_halves_of_surrogate_pairs_are_found_and_replaced(text: str) -> None:
    raw = json.dumps(text).encode()
    joined = json.loads(raw)  # two halves that stand side by side are one character
    try:
        joined.encode()
        is_whole = True
    except UnicodeEncodeError:
        is_whole = False
    assert has_half_surrogate(raw) is not is_whole
    repaired = json.loads(with_whole_characters(raw))
    assert repaired == "".join("\ufffd" if "\ud800" <= one <= "\udfff" else one for one in joined)


def test_a_half_is_found_at_the_end_of_a_part() -> None:
    pairs = rb"\ud83d\ude00" * 50_000
    assert not has_half_surrogate(b'"' + pairs + b'"')
    assert has_half_surrogate(b'"' + pairs + rb'\ud83d"')
    assert has_half_surrogate(b'"' + pairs + rb'\\\ude00"')


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    assert with_whole_characters(b'"caf\xe9 \xf0\x9f"') == '"caf\ufffd \ufffd"'.encode()
