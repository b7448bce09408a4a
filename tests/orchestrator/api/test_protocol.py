"""Messages of a client become those of an engine."""

from typing import Any

import pytest

from orchestrator.api.openai.protocol import (
    ChatMessage,
    FunctionCall,
    TextPart,
    ToolCallBody,
    engine_messages,
    prompt_messages,
)
from orchestrator.api.openai.responses import InputItem, input_messages
from orchestrator.engine.contract import Message, ToolCall
from orchestrator.registry.prompts import prompt_set
from orchestrator.run.steps.role import ResolvedRole


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


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ({}, "{}"),
        ({"arguments": None}, "{}"),
        ({"arguments": ""}, "{}"),
        ({"arguments": '{"a": '}, '{"a": '),
        ({"arguments": {"a": "ü"}}, '{"a": "ü"}'),
        ({"arguments": ["a"]}, '["a"]'),
    ],
)
def test_earlier_calls_may_have_any_arguments(given: dict[str, Any], arguments: str) -> None:
    expected = [Message("assistant", "", (ToolCall("c", "f", arguments),))]
    call = {"id": "c", "function": {"name": "f", **given}}
    chat = ChatMessage.model_validate({"role": "assistant", "content": None, "tool_calls": [call]})
    assert engine_messages([chat]) == expected
    item = InputItem.model_validate({"type": "function_call", "call_id": "c", "name": "f", **given})
    assert input_messages([item], None) == expected


def test_parts_of_a_message_are_lines() -> None:
    parts = [TextPart(type="text", text="Summarize."), TextPart(type="text", text="Ana arrived.")]
    assert engine_messages([ChatMessage(role="user", content=parts)]) == [Message("user", "Summarize.\nAna arrived.")]


def test_a_chat_goes_to_a_model_as_it_is() -> None:
    """Only the embedded models get a user's message in the layout of a step's action, which they are trained on."""
    chat = [Message("user", "Hello."), Message("assistant", "Hi."), Message("user", "And now?")]
    general = ResolvedRole(name="worker", model="m", system="Be kind.", prompts=prompt_set("general"))
    assert prompt_messages(chat, general, "") == (Message("system", "Be kind."), *chat)
    tiny = ResolvedRole(name="worker", model="m", prompts=prompt_set("tiny"))
    assert [message.content for message in prompt_messages(chat, tiny, "")] == ["Task: Hello.", "Hi.", "Task: And now?"]
