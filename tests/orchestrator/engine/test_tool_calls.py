"""Calls of tools are read in every syntax, whatever pieces the text comes in."""

import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine import literal_calls, tool_calls, whole_calls, xml_calls
from orchestrator.engine.contract import Message, ToolCall
from orchestrator.engine.tool_calls import (
    ArgumentsDelta,
    CallEvent,
    TextDelta,
    ToolCallBroken,
    ToolCallFinished,
    ToolCallParser,
    ToolCallStarted,
)
from orchestrator.registry.call_syntax import (
    BARE_JSON,
    DEEPSEEK,
    DEEPSEEK_DSML,
    DEEPSEEK_V31,
    FAMILIES,
    FUNCTION_TAGS,
    GEMMA4,
    GLM,
    HARMONY,
    HERMES,
    LFM2,
    LLAMA3,
    MISTRAL,
    MISTRAL_TEKKEN,
    QWEN_CODER,
    TOOL_CALL_LIST,
    CallSyntax,
    call_syntax,
)
from orchestrator.registry.chat_template import ChatTemplate

TEMPLATES: Final = Path(__file__).parent / "chat_templates"
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
QWEN_CALL: Final = (
    "<tool_call>\n<function=weather>\n<parameter=city>\nZoë\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
    "</function>\n</tool_call>"
)
DSML_CALL: Final = (
    '<｜DSML｜invoke name="weather">\n<｜DSML｜parameter name="city" string="true">3</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
)
DSML_CLOCK: Final = '<｜DSML｜invoke name="clock">\n\n</｜DSML｜invoke>\n'
QWEN_CLOCK: Final = "<tool_call>\n<function=clock>\n</function>\n</tool_call>"

CALLS: Final[Mapping[str, tuple[CallSyntax | None, str, str, list[tuple[str, Any]]]]] = {
    "hermes": (HERMES, f"<tool_call>\n{NAMED}\n</tool_call>", "", [WEATHER]),
    "hermes, several": (
        HERMES,
        f"<tool_call>{NAMED}</tool_call>\n<tool_call>\n{TIMED}\n</tool_call>",
        "",
        [WEATHER, CLOCK],
    ),
    "hermes, without a line break": (
        HERMES,
        f"<tool_call>{NAMED}</tool_call><tool_call>{TIMED}</tool_call>",
        "",
        [WEATHER, CLOCK],
    ),
    "hermes after prose": (
        HERMES,
        f"I shall look.\n\n<tool_call>\n{NAMED}\n</tool_call>",
        "I shall look.",
        [WEATHER],
    ),
    "hermes after a code block": (
        HERMES,
        f"```\nls\n```\n<tool_call>\n{NAMED}\n</tool_call>",
        "```\nls\n```",
        [WEATHER],
    ),
    "hermes without an end": (HERMES, f"<tool_call>\n{NAMED}\n", "", [WEATHER]),
    "hermes without a brace": (HERMES, f"<tool_call>\n{NAMED[:-1]}\n</tool_call>", "", [WEATHER]),
    "hermes, two in one mark": (HERMES, f"<tool_call>\n{NAMED}\n{TIMED}\n</tool_call>", "", [WEATHER, CLOCK]),
    "hermes, a list": (HERMES, f"<tool_call>[{NAMED}, {TIMED}]</tool_call>", "", [WEATHER, CLOCK]),
    "hermes, no arguments": (HERMES, '<tool_call>{"name": "clock"}</tool_call>', "", [CLOCK]),
    "hermes, null": (HERMES, '<tool_call>{"name": "clock", "arguments": null}</tool_call>', "", [CLOCK]),
    "hermes, arguments in a string": (
        HERMES,
        f'<tool_call>{{"name": "weather", "arguments": {json.dumps(HERE)}}}</tool_call>',
        "",
        [WEATHER],
    ),
    "hermes, arguments first": (
        HERMES,
        f'<tool_call>{{"arguments": {HERE}, "name": "weather"}}</tool_call>',
        "",
        [WEATHER],
    ),
    "qwen coder": (
        QWEN_CODER,
        f"{QWEN_CALL}\n{QWEN_CLOCK}",
        "",
        [("weather", {"city": "Zoë", "days": 3}), CLOCK],
    ),
    "qwen coder without its mark": (
        QWEN_CODER,
        f"So:\n{QWEN_CALL.removeprefix('<tool_call>')}\n{QWEN_CLOCK.removeprefix('<tool_call>')}",
        "So:",
        [("weather", {"city": "Zoë", "days": 3}), CLOCK],
    ),
    "qwen coder without marks": (
        QWEN_CODER,
        QWEN_CALL[len("<tool_call>") : -len("</tool_call>")] + QWEN_CLOCK[len("<tool_call>") : -len("</tool_call>")],
        "",
        [("weather", {"city": "Zoë", "days": 3}), CLOCK],
    ),
    "qwen coder between texts": (
        QWEN_CODER,
        f"So:\n{QWEN_CLOCK}\nAnd:\n{QWEN_CALL}\nDone.",
        "So:And:Done.",
        [CLOCK, ("weather", {"city": "Zoë", "days": 3})],
    ),
    "llama": (LLAMA3, f'{{"name": "weather", "parameters": {HERE}}}', "", [WEATHER]),
    "llama with a type": (LLAMA3, f'{{"type": "function", "name": "weather", "parameters": {HERE}}}', "", [WEATHER]),
    "llama, function": (
        LLAMA3,
        f'{{"type": "function", "function": "weather", "parameters": {HERE}}}',
        "",
        [WEATHER],
    ),
    "llama, python tag": (LLAMA3, f'<|python_tag|>{{"name": "weather", "parameters": {HERE}}}', "", [WEATHER]),
    "llama, semicolons": (LLAMA3, f"<|python_tag|>{NAMED}; {TIMED}", "", [WEATHER, CLOCK]),
    "llama, built in": (
        LLAMA3,
        '<|python_tag|>brave_search.call(query="a (b)")',
        "",
        [("brave_search", {"query": "a (b)"})],
    ),
    "bare": (BARE_JSON, f"{NAMED}\n{TIMED}", "", [WEATHER, CLOCK]),
    "mistral": (MISTRAL, f"[TOOL_CALLS] [{NAMED}]", "", [WEATHER]),
    "mistral, several": (MISTRAL, f"Two.[TOOL_CALLS] [{NAMED}, {TIMED}]", "Two.", [WEATHER, CLOCK]),
    "mistral with ids": (MISTRAL, f'[TOOL_CALLS][{NAMED[:-1]}, "id": "a1b2c3d4e"}}, {TIMED}]', "", [WEATHER, CLOCK]),
    "mistral tekken": (
        MISTRAL_TEKKEN,
        f"Yes.[TOOL_CALLS]weather[ARGS]{HERE}[TOOL_CALLS]clock[ARGS]{{}}",
        "Yes.",
        [WEATHER, CLOCK],
    ),
    "mistral with a call id": (MISTRAL_TEKKEN, f"[TOOL_CALLS]weather[CALL_ID]a1b2c3d4e[ARGS]{HERE}", "", [WEATHER]),
    "functionary": (FUNCTION_TAGS, f"<function=weather>{HERE}</function>", "", [WEATHER]),
    "functionary, several": (
        FUNCTION_TAGS,
        f"<function=weather>{HERE}</function><function=clock>{{}}</function>",
        "",
        [WEATHER, CLOCK],
    ),
    "phi": (TOOL_CALL_LIST, f"<|tool_call|>[{NAMED}]<|/tool_call|>", "", [WEATHER]),
    "deepseek": (
        DEEPSEEK,
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{HERE}\n```<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>",
        "",
        [WEATHER],
    ),
    "deepseek, several": (
        DEEPSEEK,
        f"Two.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{HERE}\n```"
        "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>clock\n```json\n{}\n```<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>",
        "Two.",
        [WEATHER, CLOCK],
    ),
    "deepseek 3.1": (
        DEEPSEEK_V31,
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{HERE}<｜tool▁call▁end｜><｜tool▁call▁begin｜>clock"
        "<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "",
        [WEATHER, CLOCK],
    ),
    "deepseek, a call alone": (
        DEEPSEEK_V31,
        f"<｜tool▁call▁begin｜>weather<｜tool▁sep｜>{HERE}<｜tool▁call▁end｜> Done.",
        "Done.",
        [WEATHER],
    ),
    "deepseek 4": (
        DEEPSEEK_DSML,
        f"Two.\n\n<｜DSML｜tool_calls>\n{DSML_CALL}{DSML_CLOCK}</｜DSML｜tool_calls>",
        "Two.",
        [("weather", {"city": "3", "days": 3}), CLOCK],
    ),
    "deepseek 3.2": (
        DEEPSEEK_DSML,
        f"<｜DSML｜function_calls>\n{DSML_CALL}</｜DSML｜function_calls>",
        "",
        [("weather", {"city": "3", "days": 3})],
    ),
    "gemma 4": (
        GEMMA4,
        '<|tool_call>call:weather{city:<|"|>Zoë "A" {b} [c]<|"|>,days:3}<tool_call|>',
        "",
        [("weather", {"city": 'Zoë "A" {b} [c]', "days": 3})],
    ),
    "gemma 4, several": (
        GEMMA4,
        'Two.<|tool_call>call:weather{city:<|"|>A<|"|>,more:{on:true,in:[null,-1.5,{}],<|"|>x y<|"|>:[]}}<tool_call|>'
        "<|tool_call>call:clock{}<tool_call|>",
        "Two.",
        [("weather", {"city": "A", "more": {"on": True, "in": [None, -1.5, {}], "x y": []}}), CLOCK],
    ),
    "gemma 4 without an end": (GEMMA4, "<|tool_call>call:clock{}", "", [CLOCK]),
    "lfm": (
        LFM2,
        "<|tool_call_start|>[weather(city='Zo\\u00eb \\'A\\'\\n', days=3)]<|tool_call_end|>",
        "",
        [("weather", {"city": "Zoë 'A'\n", "days": 3})],
    ),
    "lfm, several": (
        LFM2,
        'Two.<|tool_call_start|>[weather(city="It\'s", more={\'on\': True, "in": [None, null, 1.5, {}]}), clock()]'
        "<|tool_call_end|> Done.",
        "Two.Done.",
        [("weather", {"city": "It's", "more": {"on": True, "in": [None, None, 1.5, {}]}}), CLOCK],
    ),
    "lfm, several blocks": (
        LFM2,
        "<|tool_call_start|>[clock()]<|tool_call_end|>\n<|tool_call_start|>[weather(city='A')]<|tool_call_end|>",
        "",
        [CLOCK, ("weather", {"city": "A"})],
    ),
    "lfm, repeated without its mark": (
        LFM2,
        "<|tool_call_start|>[clock()]<|tool_call_end|>[clock()]<|tool_call_end|>Done.",
        "Done.",
        [CLOCK],
    ),
    "lfm, json": (LFM2, f"<|tool_call_start|>[{NAMED}, {TIMED}]<|tool_call_end|>", "", [WEATHER, CLOCK]),
    "glm": (
        GLM,
        "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Zoë</arg_value>\n<arg_key>days</arg_key>\n"
        "<arg_value>3</arg_value>\n</tool_call>",
        "",
        [("weather", {"city": "Zoë", "days": 3})],
    ),
    "glm, several": (
        GLM,
        "So:\n<tool_call>clock\n</tool_call>\n"
        "<tool_call>weather<arg_key>city</arg_key><arg_value>3</arg_value></tool_call>",
        "So:",
        [CLOCK, ("weather", {"city": "3"})],
    ),
    "harmony": (
        HARMONY,
        f"<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{HERE}<|call|>",
        "",
        [WEATHER],
    ),
    "harmony, in another order": (
        HARMONY,
        f"<|start|>assistant to=functions.weather<|channel|>commentary json<|message|>{HERE}",
        "",
        [WEATHER],
    ),
    "harmony after another message": (
        HARMONY,
        "Hm.<|start|>assistant<|channel|>commentary to=functions.clock json<|message|> {}<|call|>",
        "Hm.",
        [CLOCK],
    ),
    "in words": (None, json.dumps({"tool": "weather", "arguments": ARGUMENTS}), "", [WEATHER]),
    "in words, as OpenAI has it": (None, f'{{"id": "c1", "type": "function", "function": {NAMED}}}', "", [WEATHER]),
    "in words, a list": (None, f"[{NAMED}, {TIMED}]", "", [WEATHER, CLOCK]),
    "in words, fenced": (None, f"```json\n{NAMED}\n```", "", [WEATHER]),
    "in words, arguments first": (None, f'{{"arguments": {HERE}, "name": "weather"}}', "", [WEATHER]),
    "in words, with an id": (None, f'{NAMED[:-1]}, "id": "c1", "type": "function"}}', "", [WEATHER]),
}
SYNTAXES: Final = (None, *FAMILIES.values())
TEXTS: Final = [
    "It is sunny.",
    " two words \n",
    "",
    '{"tool": "moon", "arguments": {}}',
    '{"tool": ["weather"], "arguments": {}}',
    '{"name": "Bob", "arguments": {}}',
    '{"arguments": {"a": 1}, "name": "moon"}',
    '{"city": "B"}',
    "```python\nprint({})\n```",
    "```json\n{}\n```",
    "<b>no</b> <tool_ca",
    "[1] says so. [TOOL",
    "`weather` and `` `",
    '{"name": "weath',
    "[" * 10_000,
    "{" * 10_000,
    "<｜tool▁calls",
    "<|channel|>final<|message|>It is.",
    "a < b [c] {d} ```e```",
    '[{"name": "moon", "arguments": {}}]',
    "Qwen wraps a call in <tool_call> and </tool_call>, then waits.",
    "<tool_call> is what a call begins with",
    "Qwen wraps a call in `<tool_call>`; inside stands `<function=weather>`.",
    "Mistral writes [TOOL_CALLS] in front of a list.",
    "The closer is </tool_call>.",
    f"Bare: {NAMED}",
    f"Write <tool_call>{NAMED}</tool_call> for it.",
    f"Example:\n```xml\n<tool_call>\n{NAMED}\n</tool_call>\n```\nThat is all.",
    f"Example:\n~~~\n[TOOL_CALLS] [{NAMED}]\n[TOOL_CALLS]weather[ARGS]{HERE}\n~~~",
    f"> <tool_call>\n> {NAMED}\n> </tool_call>",
    f"See [TOOL_CALLS] [{NAMED}], `[TOOL_CALLS]weather[ARGS]{HERE}` and <function=weather>{HERE}</function>",
    f"In words: ```json\n{NAMED}\n```",
    "[TOOL_CALLS] weather, please",
    "<tool_call>\nweather, please\n</tool_call>",
    "<tool_call>",
    '<tool_call>{"nom": "weather"}</tool_call>',
    "<function=weather>Paris</function>",
    "<｜tool▁calls▁begin｜>weather",
    "<｜tool▁call▁begin｜>weather<｜tool▁sep｜>now",
    "<|python_tag|>import os",
    "<|python_tag|> begins it",
    "<|tool_call>weather{}",
    "<|tool_call>call: me",
    "LFM writes <|tool_call_start|>[clock()]<|tool_call_end|> for it.",
    "<|tool_call_start|>clock",
    "<|tool_call_start|>[]<|tool_call_end|>",
    "<｜DSML｜tool_calls> starts it",
    '<｜DSML｜invoke name="clock">',
]
"""No call for a model of any family."""
BROKEN: Final[list[tuple[CallSyntax | None, str, int | None]]] = [
    (DEEPSEEK_DSML, '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="moon">', None),
    (DEEPSEEK_DSML, f"<｜DSML｜tool_calls>\n{DSML_CALL[:-30]}", None),
    (GEMMA4, "<|tool_call>call:moon{}<tool_call|>", None),
    (GEMMA4, "<|tool_call>call:weather{city:Oslo}<tool_call|>", None),
    (GEMMA4, '<|tool_call>call:weather{city:<|"|>Oslo}<tool_call|>', None),
    (GEMMA4, '<|tool_call>call:weather{"city": "Oslo"}<tool_call|>', None),
    (GEMMA4, "<|tool_call>call:weather{days:1,days:2}<tool_call|>", None),
    (GEMMA4, "<|tool_call>call:weather{days:1", None),
    (GEMMA4, "<|tool_call>call:weather{days:1e999}<tool_call|>", None),
    (GEMMA4, "<|tool_call>call:clock{}<tool_call|>}<tool_call|>", None),
    (LFM2, "<|tool_call_start|>[moon()]<|tool_call_end|>", None),
    (LFM2, "<|tool_call_start|>[weather(city='It's')]<|tool_call_end|>", None),
    (LFM2, "<|tool_call_start|>[weather(city=Oslo)]<|tool_call_end|>", None),
    (LFM2, "<|tool_call_start|>[weather('Oslo')]<|tool_call_end|>", None),
    (LFM2, "<|tool_call_start|>[weather(city=str('Oslo'))]<|tool_call_end|>", None),
    (LFM2, "<|tool_call_start|>[weather(city='\\ud83d')]<|tool_call_end|>", None),
    (LFM2, "<|tool_call_start|>[weather(city=" + "[" * 5000, None),
    (LFM2, "<|tool_call_start|>[clock(), weather(days=1", None),
    (LFM2, "<|tool_call_start|>[clock()", None),
    (GLM, "<tool_call>moon\n</tool_call>", None),
    (GLM, "<tool_call>weather<arg_key>city</arg_key>Oslo", None),
    (GLM, "<tool_call>weather<arg_key>city", None),
    (HARMONY, "<|channel|>commentary to=functions.moon json<|message|>{}", None),
    (HARMONY, "<|channel|>commentary to=functions.weather<|message|>Oslo", 0),
    (HERMES, '<tool_call>{"name": "moon", "arguments": {}}</tool_call>', None),
    (HERMES, '<tool_call>{"arguments": {}, "name": "moon"}</tool_call>', None),
    (HERMES, '<tool_call>{"name": "weather", "arguments": 3}</tool_call>', 0),
    (HERMES, '<tool_call>{"name": "weather", "arguments": {"city": ', 0),
    (HERMES, '<tool_call>{"name": "weather", "arguments": "{', 0),
    (HERMES, '<tool_call>{"name": "weather", "arguments": "\\x"}', 0),
    (HERMES, f'<tool_call>\n{NAMED}\n</tool_call>\nand\n<tool_call>{{"name": "moon"}}', None),
    (HERMES, f'<tool_call>{NAMED[:-1]}, "days": 3}}</tool_call>', 0),
    (HERMES, f'<tool_call>{NAMED[:-1]}, "i', 0),
    (None, f'{NAMED[:-1]}, "why": "?"}}', 0),
    (FUNCTION_TAGS, "<function=moon>{}</function>", None),
    (LLAMA3, '<|python_tag|>weather.call(place=b"here")', None),
    (LLAMA3, "<|python_tag|>moon.call()", None),
    (MISTRAL_TEKKEN, "[TOOL_CALLS]moon[ARGS]{}", None),
    (QWEN_CODER, "<tool_call>\n<function=weather>", None),
]


def read(pieces: Iterable[str], syntax: CallSyntax | None = HERMES, only: str | None = None) -> list[CallEvent]:
    """Return the events of a text, with deltas that follow on each other as one."""
    parser = ToolCallParser(TOOLS, syntax, only)
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


def text_in(events: Iterable[CallEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def pieces_of(text: str, cuts: Iterable[int]) -> list[str]:
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[begin:end] for begin, end in itertools.pairwise(places)]


@pytest.mark.parametrize("name", CALLS)
def test_calls_are_read(name: str) -> None:
    syntax, text, said, calls = CALLS[name]
    events = read([text], syntax)
    assert text_in(events).replace(" ", "") == said.replace(" ", "")
    assert not [event for event in events if isinstance(event, ToolCallBroken)]
    done = [event for event in events if isinstance(event, ToolCallFinished)]
    assert [(one.name, json.loads(one.arguments)) for one in done] == calls
    assert [one.index for one in done] == [*range(len(calls))]
    for one in done:
        started = events.index(ToolCallStarted(one.index, one.name))
        assert events[started + 1] == ArgumentsDelta(one.index, one.arguments)
        assert events[started + 2] == one


@pytest.mark.parametrize(
    ("syntax", "text"),
    [
        *((syntax, text) for syntax, text, _, _ in CALLS.values()),
        *((syntax, text) for syntax, text, _ in BROKEN if len(text) < 200),
        *((HERMES, text) for text in TEXTS if len(text) < 200),
    ],
)
def test_it_does_not_matter_how_the_text_is_cut(syntax: CallSyntax | None, text: str) -> None:
    whole = read([text], syntax)
    assert read(text, syntax) == whole
    for cut in range(len(text)):
        assert read([text[:cut], text[cut:]], syntax) == whole


SNIPPETS: Final = [
    *("<tool_call>", "\n<tool_call>", "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "<function=", ">"),
    *("</function>", "```", "json", "{", "}", "[", "]", '"', "name", "weather", "clock", "arguments", ":", ",", " "),
    *("\n", ";", "\\", "\n```\n", "[CALL_ID]", "\nx", "function"),
    *(
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
    ),
    *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<|channel|>commentary to=functions.", "<|message|>"),
    *('{"name": "weather", "arguments": ', '{"city": "B"}', '{"arguments": ', '"{}"', NAMED, TIMED, "x", "null", "1"),
    *(".call(", "<parameter=city>", "</parameter>", "<tool_call>weather", QWEN_CALL),
    *(
        "<｜DSML｜tool_calls>\n",
        '<｜DSML｜invoke name="clock">',
        "</｜DSML｜invoke>",
        "</｜DSML｜tool_calls>",
        DSML_CALL,
    ),
    *("<|tool_call>", "call:", "clock{", "city:", '<|"|>', "<tool_call|>", "true", "<|tool_call>call:clock{}"),
    *("<|tool_call_start|>", "[clock(", ")", "city=", "'", "<|tool_call_end|>", "<|tool_call_start|>[clock()]"),
]


@given(
    st.lists(st.sampled_from(SNIPPETS), max_size=24),
    st.lists(st.integers(0, 10_000), max_size=8),
    st.sampled_from(SYNTAXES),
)
def test_any_text_cut_anyhow_gives_the_same_events(
    snippets: list[str], cuts: list[int], syntax: CallSyntax | None
) -> None:
    text = "".join(snippets)
    assert read(pieces_of(text, cuts), syntax) == read([text], syntax)


@given(st.text(), st.lists(st.integers(0, 10_000), max_size=8), st.sampled_from(SYNTAXES))
def test_no_text_is_lost(text: str, cuts: list[int], syntax: CallSyntax | None) -> None:
    events = read(pieces_of(text, cuts), syntax)
    if all(isinstance(event, TextDelta) for event in events):
        assert text_in(events) == text


@given(st.lists(st.sampled_from(SNIPPETS), max_size=24), st.sampled_from(SYNTAXES))
def test_a_text_without_a_call_is_returned_unchanged(snippets: list[str], syntax: CallSyntax | None) -> None:
    text = "".join(snippets)
    events = read([text], syntax)
    if all(isinstance(event, TextDelta) for event in events):
        assert text_in(events) == text


@given(st.lists(st.sampled_from([text for text in SNIPPETS if text != QWEN_CALL]), max_size=24))
def test_what_stands_in_a_code_block_is_no_call(snippets: list[str]) -> None:
    text = "See:\n````\n" + "".join(snippets).replace("`", "") + "\n````\nDone."
    for syntax in SYNTAXES:
        assert read([text], syntax) == [TextDelta(text)]


@pytest.mark.parametrize("text", TEXTS)
def test_any_other_answer_is_text(text: str) -> None:
    for syntax in SYNTAXES:
        assert read([text], syntax) == ([TextDelta(text)] if text else [])


@pytest.mark.parametrize("name", CALLS)
def test_a_call_in_the_syntax_of_another_family_is_text(name: str) -> None:
    own, text, _, _ = CALLS[name]
    other = GLM if own is not GLM else MISTRAL
    assert read([text], other) == [TextDelta(text)]


@pytest.mark.parametrize(("syntax", "text", "index"), BROKEN)
def test_a_broken_call_is_reported_with_its_place(syntax: CallSyntax | None, text: str, index: int | None) -> None:
    (broken,) = [event for event in read([text], syntax) if isinstance(event, ToolCallBroken)]
    assert broken.index == index
    assert broken.problem
    assert text[broken.at] in "<[{"


@pytest.mark.parametrize(("text", "at"), [("It is", 2), ("<b>", 2), ("[1]", 2), ("`w`", 2), ('{"x', 3)])
def test_text_is_sent_as_soon_as_it_cannot_be_a_call(text: str, at: int) -> None:
    for syntax in SYNTAXES:
        parser = ToolCallParser(TOOLS, syntax)
        assert "".join(text_in(parser.push(sign)) for sign in text[:at]) == text[:at]


def test_arguments_are_sent_as_they_come() -> None:
    parser = ToolCallParser(TOOLS, HERMES)
    assert parser.push('<tool_call>{"name": "weather"') == []
    assert parser.push(', "arguments"') == []
    assert parser.push(": ") == [ToolCallStarted(0, "weather")]
    assert parser.push('{"city"') == [ArgumentsDelta(0, '{"city"')]
    assert parser.push(': "B"') == [ArgumentsDelta(0, ': "B"')]
    assert parser.push("}}") == [ArgumentsDelta(0, "}"), ToolCallFinished(0, "weather", '{"city": "B"}')]
    assert parser.push("</tool_call>") == parser.finish() == []


def test_a_text_that_is_all_arguments_of_one_tool() -> None:
    assert read([" ", HERE], only="weather") == [
        ToolCallStarted(0, "weather"),
        ArgumentsDelta(0, HERE),
        ToolCallFinished(0, "weather", HERE),
    ]
    assert isinstance(read(["Paris"], only="weather")[-1], ToolCallBroken)


JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.lists(st.dictionaries(st.text(max_size=6), JSON, max_size=4), min_size=1, max_size=3),
    st.sampled_from([syntax.from_grammar for syntax in FAMILIES.values()]),
    st.sampled_from(["", "I look.\n"]),
)
def test_calls_that_are_written_in_a_syntax_are_read_in_it(
    calls: list[dict[str, Any]], syntax: CallSyntax, said: str
) -> None:
    calls, said = calls if syntax.several else calls[:1], "" if syntax.bare else said
    written = [
        f"{syntax.opening}weather{syntax.middle}{json.dumps(one, ensure_ascii=False)}{syntax.closing}" for one in calls
    ]
    events = read([said + syntax.start + syntax.separator.join(written) + syntax.end], syntax)
    done = [event for event in events if isinstance(event, ToolCallFinished)]
    assert [(one.name, json.loads(one.arguments)) for one in done] == [("weather", one) for one in calls]
    assert text_in(events) == said.rstrip()
    assert not any(isinstance(event, ToolCallBroken) for event in events)


@pytest.mark.parametrize("name", ["deepseek_v4", "gemma4", "lfm2_5", "qwen3", "llama3", "mistral_v3", "mistral_tekken"])
def test_what_a_template_shows_of_a_call_is_read_as_that_call(name: str) -> None:
    source = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
    syntax = call_syntax(source)
    assert syntax is not None
    template = ChatTemplate(source, "<s>", "</s>")
    question, call = Message("user", "Hi"), ToolCall("a1b2c3d4e", "weather", HERE)
    told = template.segments((question, Message("assistant", "", (call,)), Message("tool", "sun", (), "a1b2c3d4e")))
    shown = "".join(segment.text for segment in told).partition("sun")[0]
    place = max(shown.find(start) for start in (syntax.start + syntax.opening, *syntax.marks) if start in shown)
    calls = [event for event in read([shown[place:]], syntax) if isinstance(event, ToolCallFinished)]
    assert [(one.name, json.loads(one.arguments)) for one in calls] == [WEATHER]


class CountingPattern:
    """A regular expression that counts the characters that it has looked at."""

    scanned = 0

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern

    def match(self, text: str, at: int = 0) -> re.Match[str] | None:
        return self._count(self._pattern.match(text, at), text, at, at + 600)  # all patterns for heads are bounded

    def search(self, text: str, at: int = 0) -> re.Match[str] | None:
        return self._count(self._pattern.search(text, at), text, at, len(text))

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        CountingPattern.scanned += len(text)
        return self._pattern.finditer(text)

    def sub(self, replace: Callable[[re.Match[str]], str], text: str) -> str:
        CountingPattern.scanned += len(text)
        return self._pattern.sub(replace, text)

    @staticmethod
    def _count(found: re.Match[str] | None, text: str, at: int, most: int) -> re.Match[str] | None:
        CountingPattern.scanned += (found.end() if found else min(most, len(text))) - at
        return found


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the parser count what it looks at."""
    for module in (literal_calls, tool_calls, whole_calls, xml_calls):
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                monkeypatch.setattr(module, name, CountingPattern(value))
    forms = {}
    for name, form in tool_calls._FORMS.items():
        assert isinstance(form, literal_calls.LiteralForm | xml_calls.XmlForm)
        patterns: dict[str, Any] = {
            field.name: CountingPattern(value)
            for field in dataclasses.fields(form)
            if isinstance(value := getattr(form, field.name), re.Pattern)
        }
        forms[name] = dataclasses.replace(form, **patterns)
    monkeypatch.setattr(tool_calls, "_FORMS", forms)
    monkeypatch.setattr(tool_calls, "PYTHON", forms["python"])


def scanned_in(text: str, syntax: CallSyntax | None, piece: int) -> int:
    """Return how many characters are looked at, or copied, to read a text in pieces of this size."""
    CountingPattern.scanned = held = 0
    parser = ToolCallParser(TOOLS, syntax)
    for at in range(0, len(text), piece):
        parser.push(text[at : at + piece])
        held += len(parser._text)
    parser.finish()
    return CountingPattern.scanned + held


BODY: Final = "x = f(1) </\n"
GROWING: Final[Mapping[str, tuple[CallSyntax | None, str, str, str]]] = {
    "text": (HERMES, "", BODY, ""),
    "text without calls": (None, "", BODY, ""),
    "spaces": (HERMES, "a", " \n", "b"),
    "spaces behind a mark": (HERMES, "<tool_call>", " ", "b"),
    "marks": (HERMES, "", "\n<tool_call>", ""),
    "heads": (HERMES, "", '\n<tool_call>{"name": "', ""),
    "tags": (FUNCTION_TAGS, "", "\n<function=weather", ""),
    "marks of a list": (MISTRAL, "", "\n[TOOL_CALLS][", ""),
    "names": (MISTRAL_TEKKEN, "", "\n[TOOL_CALLS]weather", ""),
    "separated": (DEEPSEEK_V31, "", "\n<｜tool▁call▁begin｜>weather<｜tool▁sep｜>", ""),
    "messages": (HARMONY, "", "\n<|channel|>commentary to=functions.weather", ""),
    "hermes": (HERMES, '<tool_call>{"name": "weather", "arguments": {"city": "', BODY.replace("\n", "\\n"), '"}}'),
    "in a string": (HERMES, '<tool_call>{"name": "weather", "arguments": "{\\"city\\": \\"', "x (1) ", '\\"}"}'),
    "arguments first": (HERMES, '<tool_call>{"arguments": {"city": "', "x (1) ", '"}, "name": "weather"}'),
    "python": (LLAMA3, '<|python_tag|>weather.call(city="', "x (1) ", '")'),
    "bare": (LLAMA3, '{"name": "weather", "parameters": {"city": "', "x (1) ", '"}}'),
    "calls": (HERMES, "", f"<tool_call>\n{TIMED}\n</tool_call>\n", ""),
    "xml": (QWEN_CODER, "<tool_call>\n<function=weather>\n<parameter=city>\n", BODY, "\n</parameter>\n</function>"),
    "closing tags": (QWEN_CODER, "<tool_call>\n<function=weather>\n<parameter=city>\n", "a </parameter> b\n", ""),
    "parameters": (QWEN_CODER, "<tool_call>\n<function=weather>", "<parameter=city>\na\n</parameter>\n", ""),
    "calls in xml": (QWEN_CODER, "", f"{QWEN_CLOCK}\n", ""),
    "openings in xml": (QWEN_CODER, "", "<tool_call>\n<function=clock>\n", ""),
    "pairs": (GLM, "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>", BODY, "</arg_value>\n</tool_call>"),
    "dsml": (
        DEEPSEEK_DSML,
        '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="weather">\n<｜DSML｜parameter name="city" string="true">',
        BODY,
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
    ),
    "calls in dsml": (DEEPSEEK_DSML, "<｜DSML｜tool_calls>\n", DSML_CLOCK, "</｜DSML｜tool_calls>"),
    "gemma": (GEMMA4, '<|tool_call>call:weather{city:<|"|>', BODY, '<|"|>}<tool_call|>'),
    "calls of gemma": (GEMMA4, "", "<|tool_call>call:clock{}<tool_call|>", ""),
    "openings of gemma": (GEMMA4, "", "\n<|tool_call>call:clock", ""),
    "python calls": (LFM2, "<|tool_call_start|>[clock()", ", clock()", "]<|tool_call_end|>"),
    "python texts": (LFM2, "<|tool_call_start|>[weather(city=[", "'x (1) ', ", "])]<|tool_call_end|>"),
    "an open python text": (LFM2, "<|tool_call_start|>[weather(city='", "x \\", ""),
    "blocks of python": (LFM2, "", "<|tool_call_start|>[clock()]<|tool_call_end|>\n", ""),
    "repeated blocks": (LFM2, "<|tool_call_start|>", "[clock()]<|tool_call_end|>\n", ""),
    "code blocks": (HERMES, "", "```\n<tool_call>\n```\n", ""),
}


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize("piece", [1, 1 << 20])
@pytest.mark.parametrize("name", GROWING)
def test_the_work_grows_with_the_length_and_not_with_its_square(name: str, piece: int) -> None:
    syntax, before, body, after = GROWING[name]
    short, long = (scanned_in(before + body * (size // len(body)) + after, syntax, piece) for size in (1_200, 9_600))
    assert long < 16 * short + 50_000, "it would be 64 times as much if it grew with the square"
    assert long < 9_600 * 600
