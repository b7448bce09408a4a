"""Arguments in the notations of Python and of Gemma arrive with their values, or the call is broken."""

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.tool_calls import ToolCallBroken, ToolCallFinished, ToolCallParser
from orchestrator.registry.call_syntax import GEMMA4, LFM2, CallSyntax

VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
NAMES: Final = st.from_regex(r"[a-z_]\w{0,5}", fullmatch=True)
CALLS: Final = st.lists(st.dictionaries(NAMES, VALUES, max_size=4), min_size=1, max_size=3)


def python(calls: list[dict[str, Any]]) -> str:
    """Return calls as the template of LFM2.5 writes them, with texts escaped as Python does."""
    written = [f"write({', '.join(f'{name}={value!r}' for name, value in call.items())})" for call in calls]
    return f"<|tool_call_start|>[{', '.join(written)}]<|tool_call_end|>"


def gemma(calls: list[dict[str, Any]]) -> str:
    """Return calls as the template of Gemma 4 writes them."""
    return "".join(f"<|tool_call>call:write{{{gemma_members(call)}}}<tool_call|>" for call in calls)


def gemma_members(fields: dict[str, Any]) -> str:
    keys = {key: key if key.isidentifier() else gemma_value(key) for key in fields}
    return ",".join(f"{keys[key]}:{gemma_value(value)}" for key, value in fields.items())


def gemma_value(value: object) -> str:
    match value:
        case str():
            return f'<|"|>{value}<|"|>'
        case dict():
            return f"{{{gemma_members(value)}}}"
        case list():
            return f"[{','.join(map(gemma_value, value))}]"
        case bool():
            return "true" if value else "false"
    return str(value)


def calls_in(text: str, syntax: CallSyntax) -> list[Any]:
    """Return the arguments of the calls in a text; a problem for one that is broken."""
    parser = ToolCallParser({"write": {}}, syntax)
    return [
        json.loads(event.arguments) if isinstance(event, ToolCallFinished) else event.problem
        for event in (*parser.push(text), *parser.finish())
        if isinstance(event, ToolCallFinished | ToolCallBroken)
    ]


@given(CALLS)
def test_calls_of_python_functions_are_read_as_they_are_written(calls: list[dict[str, Any]]) -> None:
    assert calls_in(python(calls), LFM2) == calls


@given(CALLS)
def test_calls_of_gemma_are_read_as_they_are_written(calls: list[dict[str, Any]]) -> None:
    text = gemma(calls)
    if text.count('<|"|>') % 2 == 0 and not any('<|"' in json.dumps(call) for call in calls):
        assert calls_in(text, GEMMA4) == calls


@given(st.text(alphabet="'\"\\nux0 ab{}[](),:=<|>", max_size=24), st.sampled_from([LFM2, GEMMA4]))
def test_any_text_in_the_place_of_a_value_is_a_value_or_breaks_the_call(text: str, syntax: CallSyntax) -> None:
    start, end = ("<|tool_call_start|>[write(a=", ")]") if syntax is LFM2 else ("<|tool_call>call:write{a:", "}")
    (first, *_) = calls_in(f"{start}{text}{end}", syntax)
    assert isinstance(first, str | dict)


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("'it\\'s'", "it's"),
        ('"it\'s"', "it's"),
        ("'two\nlines'", "two\nlines"),
        (r"'\d+\x41\u00e9\U0001d518'", "\\d+Aé\U0001d518"),
        (r"'\ud83d\ude00'", "😀"),
        ("True", True),
        ("true", True),
        ("None", None),
        ("null", None),
        ("+1.", 1.0),
        ("007", 7),
        ("['a', ]", ["a"]),
        ("{'a': {\"b\": [1e3]}}", {"a": {"b": [1000.0]}}),
    ],
)
def test_literals_of_python(literal: str, value: object) -> None:
    assert calls_in(f"<|tool_call_start|>[write(a={literal})]<|tool_call_end|>", LFM2) == [{"a": value}]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a='it's'", "no ','"),
        ("a=1 + 1", "no ','"),
        ("a=open('x')", "no value"),
        ("a=b", "no value"),
        ("a=f'x'", "no value"),
        ("'x'", "no name of an argument"),
        ("**{}", "no name of an argument"),
        ("a=1, a=2", "'a' occurs twice"),
        ("a={b: 1}", "no key"),
        ("a=1e999", "cannot be written as JSON"),
        ("a=" + "9" * 5000, "cannot be written as JSON"),
        ("a=" + "[" * 5000, "nested too deeply"),
        (r"a='\ud83d'", "cannot be written as JSON"),
        (r"a='\U00110000'", "cannot be written as JSON"),
    ],
)
def test_what_is_no_literal_breaks_the_call(text: str, problem: str) -> None:
    (found,) = calls_in(f"<|tool_call_start|>[write({text})]<|tool_call_end|>", LFM2)
    assert problem in found
