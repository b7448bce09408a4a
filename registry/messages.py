"""The messages of a conversation, and the tools that are offered with it. A leaf that engines share."""

from typing import NamedTuple


class ToolCall(NamedTuple):
    """A tool call that the assistant made earlier."""

    id: str  # repeated in `Message.tool_call_id` of its result
    name: str
    arguments: str  # JSON, as the model wrote it


class Message(NamedTuple):
    """One message of a prompt, rendered by the model's chat template in the engine."""

    role: str  # system, user, assistant or tool
    content: str  # of a tool message: the tool's result
    tool_calls: tuple[ToolCall, ...] = ()  # rendered as text if the template does not support tool calls
    tool_call_id: str = ""  # the id of the call that a tool message answers


class OfferedTool(NamedTuple):
    name: str
    description: str
    parameters: str  # the JSON Schema of its arguments, as JSON
