"""What clients say of earlier calls, as the engine gets it."""

import json

import pytest

from orchestrator.api.openai.messages import ChatMessage, FunctionCall, ToolCall, pairs_of


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"t": "\\u00e9"}', {"t": "é"}),
        ('{"t": "\\ud83d\\ude00"}', {"t": "😀"}),
        ('{"t": "\\ud83d"}', '{"t": "\\ud83d"}'),
        ('{"\\udc00": 1}', '{"\\udc00": 1}'),
        ("{not json", "{not json"),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_arguments_that_are_no_json_in_unicode_stay_text(arguments: str, told: object) -> None:
    call = ToolCall(function=FunctionCall(name="paint", arguments=arguments))
    ((role, text),) = pairs_of([ChatMessage(role="assistant", tool_calls=[call])])
    assert role == "assistant"
    assert json.loads(text.encode()) == {"tool": "paint", "arguments": told}
