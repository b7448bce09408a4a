"""Calls of a client's tools are recognized in the forms that models write them in."""

import json

import pytest

from orchestrator.api.openai.tools import ClientTool, ClientTools, ParsedToolCall, ToolCallBuffer

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = ClientTools.of([ClientTool("weather", "", PARAMETERS)], None)
ARGUMENTS = {"city": "Zürich"}
CALLS = [
    json.dumps({"tool": "weather", "arguments": ARGUMENTS}),
    json.dumps({"name": "weather", "arguments": ARGUMENTS}),
    json.dumps({"name": "weather", "parameters": ARGUMENTS}, indent=1),
    json.dumps([{"name": "weather", "arguments": ARGUMENTS}]),
    "<tool_call>\n" + json.dumps({"name": "weather", "arguments": ARGUMENTS}) + "\n</tool_call>",
    "```json\n" + json.dumps({"tool": "weather", "arguments": ARGUMENTS}) + "\n```",
    "\n```\n" + json.dumps({"tool": "weather", "arguments": ARGUMENTS}) + "```\n",
]
TEXTS = [
    "It is sunny.",
    json.dumps({"tool": "weather", "arguments": {"town": "B"}}),
    json.dumps({"tool": "clock", "arguments": ARGUMENTS}),
    json.dumps({"tool": ["weather"], "arguments": ARGUMENTS}),
    json.dumps({"name": "weather", "arguments": ARGUMENTS, "why": "?"}),
    "```python\nprint({})\n```",
    "<b>no</b>",
    "[1] says so.",
    "`weather`",
    "[" * 100_000,
]


@pytest.mark.parametrize("text", CALLS)
def test_a_call_is_recognized_and_not_streamed_as_text(text: str) -> None:
    call = TOOLS.parse(text)
    assert call is not None
    assert (call.name, json.loads(call.arguments)) == ("weather", ARGUMENTS)
    buffer = ToolCallBuffer(TOOLS)
    assert "".join(map(buffer.push, text)) == ""
    assert buffer.finish(text) == ("", ParsedToolCall("weather", call.arguments))


@pytest.mark.parametrize("text", TEXTS)
def test_any_other_answer_is_text(text: str) -> None:
    assert TOOLS.parse(text) is None
    buffer = ToolCallBuffer(TOOLS)
    sent = buffer.push(text)
    assert sent + buffer.finish(text)[0] == text


@pytest.mark.parametrize(("text", "at"), [("It is", 1), ("```python\n", 4), ("<b>", 2), ("[1]", 2), ("`w`", 2)])
def test_text_is_sent_as_soon_as_it_cannot_be_a_call(text: str, at: int) -> None:
    buffer = ToolCallBuffer(TOOLS)
    assert [buffer.push(character) for character in text[: at - 1]] == [""] * (at - 1)
    assert buffer.push(text[at - 1]) == text[:at]
