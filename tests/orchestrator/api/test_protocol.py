"""Messages of a client become those of an engine."""

from orchestrator.api.openai.protocol import ChatMessage, FunctionCall, TextPart, ToolCallBody, engine_messages
from orchestrator.api.openai.responses import InputItem, input_messages
from orchestrator.engine.contract import Message, ToolCall


def test_tool_calls_and_results_stay_what_they_are() -> None:
    calls = [ToolCallBody(id=name, function=FunctionCall(name=name, arguments="{}")) for name in ("a", "b")]
    messages = [
        ChatMessage(role="assistant", tool_calls=calls),
        ChatMessage(role="tool", tool_call_id="b", content="x"),
    ]
    assert engine_messages(messages) == [
        Message("assistant", "", (ToolCall("a", "a", "{}"), ToolCall("b", "b", "{}"))),
        Message("tool", "x", tool_call_id="b"),
    ]


def test_calls_in_a_row_are_one_message_s() -> None:
    calls = [InputItem(type="function_call", call_id=name, name=name, arguments="{}") for name in ("a", "b")]
    result = InputItem(type="function_call_output", call_id="a", output="x")
    assert input_messages([*calls, result], None) == [
        Message("assistant", "", (ToolCall("a", "a", "{}"), ToolCall("b", "b", "{}"))),
        Message("tool", "x", tool_call_id="a"),
    ]


def test_parts_of_a_message_are_lines() -> None:
    parts = [TextPart(type="text", text="Summarize."), TextPart(type="text", text="Ana arrived.")]
    assert engine_messages([ChatMessage(role="user", content=parts)]) == [Message("user", "Summarize.\nAna arrived.")]
