"""Earlier tool calls in the messages of a client become text for the engine."""

import json

import pytest

from orchestrator.api.openai.protocol import ChatMessage, FunctionCall, ToolCall, engine_messages


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"t": "\\u00e9"}', {"t": "é"}),
        ('{"t": "\\ud83d\\ude00"}', {"t": "😀"}),
        ('{"t": "\\ud83d"}', '{"t": "\\ud83d"}'),
        ('{"\\udc00": 1}', '{"\\udc00": 1}'),
        ("{not json", "{not json"),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_arguments_that_are_no_json_in_unicode_stay_text(arguments: str, expected: object) -> None:
    call = ToolCall(function=FunctionCall(name="paint", arguments=arguments))
    ((role, text),) = engine_messages([ChatMessage(role="assistant", tool_calls=[call])])
    assert role == "assistant"
    assert json.loads(text.encode()) == {"tool": "paint", "arguments": expected}
