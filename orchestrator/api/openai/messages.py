"""Turn the messages that clients send into those that an engine takes: system first, then user and assistant."""

import json
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from orchestrator.api.openai.names import Target
from orchestrator.engine.contract import Message
from orchestrator.errors import InputError, Problem
from orchestrator.steps.prompt import step_messages


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore")


class TextPart(_Lenient):
    """A piece of a message. Only text is understood."""

    type: str
    text: str | None = None


class FunctionCall(_Lenient):
    """The call of a function, as the model wrote it earlier."""

    name: str
    arguments: str = "{}"


class ToolCall(_Lenient):
    """One call among those of a message."""

    id: str = ""
    function: FunctionCall


class ChatMessage(_Lenient):
    """One message of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[TextPart] | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None


def text_of(content: str | Sequence[TextPart] | None, where: str) -> str:
    """Return the text of a message. Raises InputError for a part that is none."""
    if content is None or isinstance(content, str):
        return content or ""
    for number, part in enumerate(content):
        if part.text is None:
            raise InputError(Problem(f"{where}/{number}", f"is of type {part.type!r}", "text"))
    return "".join(part.text or "" for part in content)


def pairs_of(messages: Sequence[ChatMessage]) -> list[Message]:
    """Return (role, text) of each message, with the roles system, user and assistant. Raises InputError."""
    return [_pair(message, f"messages/{number}/content") for number, message in enumerate(messages)]


def prompt_of(pairs: Sequence[Message], target: Target, instructions: str) -> tuple[Message, ...]:
    """Return the messages for an engine. All that is said to the system goes in front, in this order: role, persona,
    the client's system messages, `instructions`.
    """
    said = [text for role, text in pairs if role == "system" and text]
    overlay = "\n".join(text for text in (target.persona, *said, instructions) if text)
    turns = [
        one._replace(content=_laid_out(one.content)) if target.laid_out and one.role == "user" else one for one in pairs
    ]
    talk = [one for one in turns if one.role != "system"]
    head = step_messages(target.system, overlay, (), "")[0].content.strip()
    if not talk:
        raise InputError(Problem("messages", "none is of a user", "one message of the role user at least"))
    return (Message("system", head), *talk) if head else tuple(talk)


def call_text(name: str, arguments: str) -> str:
    """Return the call of a tool as a model writes it."""
    return json.dumps({"tool": name, "arguments": _parsed(arguments)}, ensure_ascii=False)


def _pair(message: ChatMessage, where: str) -> Message:
    text = text_of(message.content, where)
    match message.role:
        case "system" | "developer":
            return Message("system", text)
        case "tool" | "function":
            return Message("user", f"[{message.tool_call_id or 'tool'}]\n{text}")
        case "assistant":
            calls = [call_text(call.function.name, call.function.arguments) for call in message.tool_calls or ()]
            return Message("assistant", "\n".join(filter(None, [text, *calls])))
        case _:
            return Message(message.role, text)


def _laid_out(text: str) -> str:
    """Return the text of a user as steps give it to a role."""
    return step_messages("", "", (), text)[1].content


def _parsed(arguments: str) -> Any:
    try:
        parsed = json.loads(arguments)
        json.dumps(parsed, ensure_ascii=False).encode()  # what is written as \ud83d alone is no Unicode
    except (ValueError, RecursionError):  # a model may have written anything
        return arguments
    return parsed
