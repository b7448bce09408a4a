"""Read what /v1/responses is given, and write what it answers: items, each a message or the call of a function."""

import secrets
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from orchestrator.api.openai.messages import TextPart, call_text, text_of
from orchestrator.api.openai.sampling import Lenient
from orchestrator.api.openai.tools import Call
from orchestrator.engine.contract import Message
from orchestrator.errors import InputError, Problem


class InputItem(Lenient):
    """A message, the call of a function, or what came of one."""

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[TextPart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[TextPart] | None = None


InputItems = Annotated[list[InputItem], Field(min_length=1, max_length=4096)]


class TextBody(BaseModel):
    """A piece of what the model says."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[Any] = Field(default_factory=list)


class MessageItem(BaseModel):
    """What the model says."""

    id: str
    type: Literal["message"] = "message"
    status: Literal["in_progress", "completed", "incomplete"]
    role: Literal["assistant"] = "assistant"
    content: list[TextBody]


class CallItem(BaseModel):
    """The model's wish to have a function called."""

    id: str
    type: Literal["function_call"] = "function_call"
    status: Literal["in_progress", "completed"]
    call_id: str
    name: str
    arguments: str


OutputItem = MessageItem | CallItem


def input_pairs(given: str | Sequence[InputItem], instructions: str | None) -> list[Message]:
    """Return (role, text) of everything given. Raises InputError for items that are not understood."""
    head: list[Message] = [Message("system", instructions)] if instructions else []
    if isinstance(given, str):
        return [*head, Message("user", given)]
    return head + [_pair(item, f"input/{number}") for number, item in enumerate(given)]


def message_item(text: str, *, whole: bool = True) -> MessageItem:
    """Return what the model said."""
    status: Literal["completed", "incomplete"] = "completed" if whole else "incomplete"
    return MessageItem(id=f"msg_{secrets.token_hex(12)}", status=status, content=[TextBody(text=text)])


def call_item(call: Call) -> CallItem:
    """Return a call."""
    mark = secrets.token_hex(12)
    return CallItem(
        id=f"fc_{mark}", status="completed", call_id=f"call_{mark}", name=call.name, arguments=call.arguments
    )


def _pair(item: InputItem, where: str) -> Message:
    match item.type:
        case "message" if item.role is not None:
            role = "system" if item.role == "developer" else item.role
            return Message(role, text_of(item.content, f"{where}/content"))
        case "function_call":
            return Message("assistant", call_text(item.name or "", item.arguments or "{}"))
        case "function_call_output":
            return Message("user", f"[{item.call_id or 'tool'}]\n{text_of(item.output, f'{where}/output')}")
        case _:
            accepted = "message with a role, function_call, function_call_output"
            raise InputError(Problem(f"{where}/type", f"{item.type!r} is not understood", accepted))
