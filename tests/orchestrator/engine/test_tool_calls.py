"""Calls of tools are read in every syntax, whatever pieces the text comes in."""

import itertools
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.tool_calls import (
    ArgumentsDelta,
    CallEvent,
    TextDelta,
    ToolCallBroken,
    ToolCallFinished,
    ToolCallParser,
    ToolCallStarted,
)

TOOLS: Final[Mapping[str, Any]] = {
    "weather": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    "clock": {"type": "object", "properties": {}},
    "brave_search": {"type": "object", "properties": {"query": {"type": "string"}}},
}
ARGUMENTS: Final = {"city": 'Zürich "A" {b} [c] \\ </tool_call>', "days": 2}
HERE: Final = json.dumps(ARGUMENTS, ensure_ascii=False)
WEATHER: Final = ("weather", ARGUMENTS)
CLOCK: Final[tuple[str, Any]] = ("clock", {})
NAMED: Final = f'{{"name": "weather", "arguments": {HERE}}}'
TIMED: Final = '{"name": "clock", "arguments": {}}'

CALLS: Final = {
    "hermes": (f"<tool_call>\n{NAMED}\n</tool_call>", "", [WEATHER]),
    "hermes, several": (f"<tool_call>{NAMED}</tool_call>\n<tool_call>\n{TIMED}\n</tool_call>", "", [WEATHER, CLOCK]),
    "hermes after prose": (f"I shall look.\n\n<tool_call>\n{NAMED}\n</tool_call>", "I shall look.", [WEATHER]),
    "hermes without an end": (f"<tool_call>\n{NAMED}\n", "", [WEATHER]),
    "hermes without a brace": (f"<tool_call>\n{NAMED[:-1]}\n</tool_call>", "", [WEATHER]),
    "hermes, two in one mark": (f"<tool_call>\n{NAMED}\n{TIMED}\n</tool_call>", "", [WEATHER, CLOCK]),
    "hermes, a list": (f"<tool_call>[{NAMED}, {TIMED}]</tool_call>", "", [WEATHER, CLOCK]),
    "hermes, no arguments": ('<tool_call>{"name": "clock"}</tool_call>', "", [CLOCK]),
    "hermes, null": ('<tool_call>{"name": "clock", "arguments": null}</tool_call>', "", [CLOCK]),
    "hermes, arguments in a string": (
        f'<tool_call>{{"name": "weather", "arguments": {json.dumps(HERE)}}}</tool_call>',
        "",
        [WEATHER],
    ),
    "hermes, arguments first": (f'<tool_call>{{"arguments": {HERE}, "name": "weather"}}</tool_call>', "", [WEATHER]),
    "qwen coder": (
        "<tool_call>\n<function=weather>\n<parameter=city>\nZoë\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
        "</function>\n</tool_call>",
        "",
        [("weather", {"city": "Zoë", "days": 3})],
    ),
    "llama": (f'{{"name": "weather", "parameters": {HERE}}}', "", [WEATHER]),
    "llama with a type": (f'{{"type": "function", "name": "weather", "parameters": {HERE}}}', "", [WEATHER]),
    "llama, function": (f'{{"type": "function", "function": "weather", "parameters": {HERE}}}', "", [WEATHER]),
    "llama, python tag": (f'<|python_tag|>{{"name": "weather", "parameters": {HERE}}}', "", [WEATHER]),
    "llama, semicolons": (f"<|python_tag|>{NAMED}; {TIMED}", "", [WEATHER, CLOCK]),
    "llama, built in": ('<|python_tag|>brave_search.call(query="a (b)")', "", [("brave_search", {"query": "a (b)"})]),
    "mistral": (f"[TOOL_CALLS] [{NAMED}]", "", [WEATHER]),
    "mistral, several": (f"[TOOL_CALLS] [{NAMED}, {TIMED}]", "", [WEATHER, CLOCK]),
    "mistral with ids": (f'[TOOL_CALLS][{NAMED[:-1]}, "id": "a1b2c3d4e"}}, {TIMED}]', "", [WEATHER, CLOCK]),
    "mistral tekken": (f"Yes.[TOOL_CALLS]weather[ARGS]{HERE}[TOOL_CALLS]clock[ARGS]{{}}", "Yes.", [WEATHER, CLOCK]),
    "mistral with a call id": (f"[TOOL_CALLS]weather[CALL_ID]a1b2c3d4e[ARGS]{HERE}", "", [WEATHER]),
    "functionary": (f"<function=weather>{HERE}</function>", "", [WEATHER]),
    "functionary, several": (
        f"<function=weather>{HERE}</function><function=clock>{{}}</function>",
        "",
        [WEATHER, CLOCK],
    ),
    "phi": (f"<|tool_call|>[{NAMED}]<|/tool_call|>", "", [WEATHER]),
    "deepseek": (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{HERE}\n```<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>",
        "",
        [WEATHER],
    ),
    "deepseek, several": (
        f"Two.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{HERE}\n```"
        "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>clock\n```json\n{}\n```<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>",
        "Two.",
        [WEATHER, CLOCK],
    ),
    "deepseek 3.1": (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{HERE}<｜tool▁call▁end｜><｜tool▁call▁begin｜>clock"
        "<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "",
        [WEATHER, CLOCK],
    ),
    "deepseek, a call alone": (
        f"<｜tool▁call▁begin｜>weather<｜tool▁sep｜>{HERE}<｜tool▁call▁end｜> Done.",
        "Done.",
        [WEATHER],
    ),
    "glm": (
        "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Zoë</arg_value>\n<arg_key>days</arg_key>\n"
        "<arg_value>3</arg_value>\n</tool_call>",
        "",
        [("weather", {"city": "Zoë", "days": 3})],
    ),
    "glm, several": (
        "So: <tool_call>clock\n</tool_call>\n"
        "<tool_call>weather<arg_key>city</arg_key><arg_value>3</arg_value></tool_call>",
        "So:",
        [CLOCK, ("weather", {"city": "3"})],
    ),
    "harmony": (
        f"<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{HERE}<|call|>",
        "",
        [WEATHER],
    ),
    "harmony, in another order": (
        f"<|start|>assistant to=functions.weather<|channel|>commentary json<|message|>{HERE}",
        "",
        [WEATHER],
    ),
    "harmony after another message": (
        "Hm.<|start|>assistant<|channel|>commentary to=functions.clock json<|message|> {}<|call|>",
        "Hm.",
        [CLOCK],
    ),
    "our own": (json.dumps({"tool": "weather", "arguments": ARGUMENTS}), "", [WEATHER]),
    "openai": (f'{{"id": "c1", "type": "function", "function": {NAMED}}}', "", [WEATHER]),
    "a list": (f"[{NAMED}, {TIMED}]", "", [WEATHER, CLOCK]),
    "fenced": (f"```json\n{NAMED}\n```", "", [WEATHER]),
    "fenced after prose": (f"Let me see:\n```\n[{NAMED}]\n```\n", "Let me see:", [WEATHER]),
    "bare after prose": (f"Let me see: {NAMED}", "Let me see:", [WEATHER]),
    "text between and after": (f"A {NAMED} B {TIMED} C", "ABC", [WEATHER, CLOCK]),
    "bare, arguments first": (f'{{"arguments": {HERE}, "name": "weather"}}', "", [WEATHER]),
    "a further key": (f'{NAMED[:-1]}, "why": "?"}}', "", [WEATHER]),
}
TEXTS: Final = [
    "It is sunny.",
    " two words \n",
    "",
    '{"tool": "moon", "arguments": {}}',
    '{"tool": ["weather"], "arguments": {}}',
    '{"name": "weather"}',
    '{"name": "Bob", "arguments": {}}',
    '{"arguments": {"a": 1}, "name": "moon"}',
    '{"city": "B"}',
    "```python\nprint({})\n```",
    "```json\n{}\n```",
    "<b>no</b> <tool_ca",
    "[1] says so. [TOOL",
    "`weather` and `` `",
    '{"name": "weath',
    "[" * 100_000,
    "{" * 10_000,
    "<｜tool▁calls",
    "<|channel|>final<|message|>It is.",
    "a < b [c] {d} ```e```",
    '[{"name": "moon", "arguments": {}}]',
]
BROKEN: Final = {
    "<tool_call>\nweather, please\n</tool_call>": None,
    "<tool_call>moon\n</tool_call>": None,
    "<tool_call>weather<arg_key>city</arg_key>Oslo": 0,
    "<tool_call>weather<arg_key>city": 0,
    "<｜tool▁calls▁begin｜>weather": None,
    "<｜tool▁call▁begin｜>weather<｜tool▁sep｜>now": None,
    "<|channel|>commentary to=functions.moon json<|message|>{}": None,
    "<|channel|>commentary to=functions.weather<|message|>Oslo": None,
    '<tool_call>{"name": "moon", "arguments": {}}</tool_call>': None,
    '<tool_call>{"nom": "weather"}</tool_call>': None,
    '<tool_call>{"name": "weather", "arguments": 3}</tool_call>': 0,
    '<tool_call>{"name": "weather", "arguments": {"city": ': 0,
    "<tool_call>": None,
    "[TOOL_CALLS] weather, please": None,
    "<function=weather>Paris</function>": None,
    "<function=moon>{}</function>": None,
    "<|python_tag|>import os": None,
    '<|python_tag|>weather.call(place=b"here")': None,
    f'{NAMED} and <tool_call>{{"name": "moon"}}': None,
}


def read(pieces: Iterable[str], only: str | None = None) -> list[CallEvent]:
    """Return the events of a text, with deltas that follow on each other as one."""
    parser = ToolCallParser(TOOLS, only)
    found: list[CallEvent] = []
    for event in [event for piece in pieces for event in parser.push(piece)] + parser.finish():
        last = found[-1] if found else None
        if isinstance(event, TextDelta) and isinstance(last, TextDelta):
            found[-1] = TextDelta(last.text + event.text)
        elif isinstance(event, ArgumentsDelta) and isinstance(last, ArgumentsDelta):
            found[-1] = ArgumentsDelta(event.index, last.text + event.text)
        else:
            found.append(event)
    return found


def _begins(event: CallEvent, call: ToolCallFinished) -> bool:
    return isinstance(event, ToolCallStarted) and (event.index, event.name) == (call.index, call.name)


def pieces_of(text: str, cuts: Iterable[int]) -> list[str]:
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[begin:end] for begin, end in itertools.pairwise(places)]


@pytest.mark.parametrize("name", CALLS)
def test_calls_are_read(name: str) -> None:
    text, said, calls = CALLS[name]
    events = read([text])
    assert "".join(event.text for event in events if isinstance(event, TextDelta)).replace(" ", "") == said.replace(
        " ", ""
    )
    assert not [event for event in events if isinstance(event, ToolCallBroken)]
    done = [event for event in events if isinstance(event, ToolCallFinished)]
    assert [(one.name, json.loads(one.arguments)) for one in done] == calls
    assert [one.index for one in done] == [*range(len(calls))]
    for one in done:
        started = next(place for place, event in enumerate(events) if _begins(event, one))
        assert events[started + 1] == ArgumentsDelta(one.index, one.arguments)
        assert events[started + 2] == one


@pytest.mark.parametrize(
    "text", [*[text for text, _, _ in CALLS.values()], *(t for t in TEXTS if len(t) < 100), *BROKEN]
)
def test_it_does_not_matter_how_the_text_is_cut(text: str) -> None:
    whole = read([text])
    assert read(text) == whole
    for cut in range(len(text)):
        assert read([text[:cut], text[cut:]]) == whole


SNIPPETS: Final = [
    *("<tool_call>", "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "<function=", ">", "</function>"),
    *("```", "json", "{", "}", "[", "]", '"', "name", "weather", "clock", "arguments", ":", ",", " ", "\n", ";", "\\"),
    *(
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
    ),
    *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<|channel|>commentary to=functions.", "<|message|>"),
    *(
        '{"name": "weather", "arguments": ',
        '{"city": "B"}',
        NAMED,
        TIMED,
        "x",
        "null",
        "1",
        ".call(",
        "<parameter=city>",
    ),
]


@given(st.lists(st.sampled_from(SNIPPETS), max_size=24), st.lists(st.integers(0, 10_000), max_size=8))
def test_any_text_cut_anyhow_gives_the_same_events(snippets: list[str], cuts: list[int]) -> None:
    text = "".join(snippets)
    assert read(pieces_of(text, cuts)) == read([text])


@given(st.text(), st.lists(st.integers(0, 10_000), max_size=8))
def test_no_text_is_lost(text: str, cuts: list[int]) -> None:
    events = read(pieces_of(text, cuts))
    if all(isinstance(event, TextDelta) for event in events):
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == text


@pytest.mark.parametrize("text", TEXTS)
def test_any_other_answer_is_text(text: str) -> None:
    assert read([text]) == ([TextDelta(text)] if text else [])


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_call_is_reported_with_its_place(text: str) -> None:
    (broken,) = [event for event in read([text]) if isinstance(event, ToolCallBroken)]
    assert broken.index == BROKEN[text]
    assert broken.problem
    assert text[broken.at] in "<["


@pytest.mark.parametrize(("text", "at"), [("It is", 2), ("<b>", 2), ("[1]", 2), ("`w`", 2), ('{"x', 3)])
def test_text_is_sent_as_soon_as_it_cannot_be_a_call(text: str, at: int) -> None:
    parser = ToolCallParser(TOOLS)
    sent = ["".join(event.text for event in parser.push(sign) if isinstance(event, TextDelta)) for sign in text[:at]]
    assert "".join(sent) == text[:at]


def test_arguments_are_sent_as_they_come() -> None:
    parser = ToolCallParser(TOOLS)
    assert parser.push('<tool_call>{"name": "weather"') == []
    assert parser.push(', "arguments": ') == []
    assert parser.push('{"city"') == [ToolCallStarted(0, "weather", 0), ArgumentsDelta(0, '{"city"')]
    assert parser.push(': "B"') == [ArgumentsDelta(0, ': "B"')]
    assert parser.push("}}") == [ArgumentsDelta(0, "}"), ToolCallFinished(0, "weather", '{"city": "B"}')]
    assert parser.push("</tool_call>") == parser.finish() == []


def test_pairs_of_keys_and_values_are_sent_as_json_as_they_come() -> None:
    parser = ToolCallParser(TOOLS)
    assert parser.push("<tool_call>weather\n<arg_key>") == [ToolCallStarted(0, "weather", 0, as_json=False)]
    assert parser.push('city</arg_key><arg_value>"B"</arg_val') == []
    assert parser.push("ue>\n<arg_key>days</arg_key>") == [ArgumentsDelta(0, '{"city": "\\"B\\""')]
    assert parser.push("<arg_value>2</arg_value>") == [ArgumentsDelta(0, ', "days": 2')]
    done = parser.push("</tool_call>")
    assert done == [ArgumentsDelta(0, "}"), ToolCallFinished(0, "weather", '{"city": "\\"B\\"", "days": 2}')]


def test_a_text_that_is_all_arguments_of_one_tool() -> None:
    assert read([" ", HERE], only="weather") == [
        ToolCallStarted(0, "weather", 1),
        ArgumentsDelta(0, HERE),
        ToolCallFinished(0, "weather", HERE),
    ]
    assert isinstance(read(["Paris"], only="weather")[-1], ToolCallBroken)
