"""Read the bodies of requests to /v1/messages: messages in blocks, tools, how much to think, the format of an answer.

The fields are those of Anthropic's API (docs.anthropic.com, Messages). What cannot be obeyed is refused by name.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from orchestrator.api.dependencies import Entries, LenientBody
from orchestrator.api.openai.completion import CompletionRequest
from orchestrator.api.openai.protocol import (
    FormatBody,
    ThinkingBody,
    answer_schema,
    may_be_continued,
    refused_part,
    requested_thinking,
)
from orchestrator.api.openai.sampling import (
    MaxTokens,
    SamplingBody,
    answer_form,
    limit_of,
    refuse_options,
    shaping_options,
)
from orchestrator.api.openai.tools import MAX_TOOLS, ClientTool, ClientTools
from orchestrator.engine.contract import Message, ToolCall
from orchestrator.errors import InputError, Problem
from registry.thinking import Thinking

_ELSEWHERE: Final = (
    *("mcp_servers", "container", "compaction"),
    *("response_format", "logprobs", "top_logprobs", "n", "reasoning_effort"),
)
"""Options that only Anthropic's servers, or only other APIs, have."""
ACCEPTED_BLOCKS: Final = "text, tool_use, tool_result, thinking, redacted_thinking, document with plain text"


class BlockSource(LenientBody):
    """Where the content of a document or an image is."""

    type: str
    media_type: str = ""
    data: str = ""


class Block(LenientBody):
    """A part of a message; `type` says which of the fields it has."""

    type: str
    text: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: "str | Entries[Block] | None" = None
    is_error: bool | None = None
    source: BlockSource | None = None
    title: str | None = None


class TurnBody(LenientBody):
    """A message of the conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | Entries[Block]


class CustomTool(LenientBody):
    """A function that the model may call. Tools that Anthropic's servers carry out are refused."""

    type: str | None = None
    name: str = Field(min_length=1, max_length=128)
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class ToolChoice(LenientBody):
    """Whether a tool has to be called: `auto`, `any`, `tool` (the one with this name) or `none`."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class OutputConfig(LenientBody):
    """The format of the answer."""

    format: FormatBody | None = None


class ThreadBody(LenientBody):
    """What the daemon keeps of the conversation, which Anthropic's API calls a thread.

    With `create` it keeps the messages and the answer under the answer's id. With `continue` the messages are those
    that follow the answer `previous_message_id`, and are kept with the new answer.
    """

    type: Literal["create", "continue"]
    previous_message_id: str | None = None


class CountBody(LenientBody):
    """What the tokens of a prompt are counted for."""

    model_config = ConfigDict(extra="allow")

    model: str
    messages: Annotated[Entries[TurnBody], Field(min_length=1)]
    system: str | Entries[Block] | None = None
    tools: Annotated[list[CustomTool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: ThinkingBody | None = None


class MessagesBody(CountBody, SamplingBody):
    """A request for the next message of the assistant.

    Options that other servers have, and Anthropic's API has not, are honoured as in chats.
    """

    model_config = ConfigDict(extra="allow")

    max_tokens: MaxTokens
    stop_sequences: Annotated[list[str], Field(max_length=16)] | None = None
    stream: bool | None = None
    output_config: OutputConfig | None = None
    output_format: FormatBody | None = None
    thread: ThreadBody | None = None


def request_of(body: MessagesBody, answer_id: str, earlier: Sequence[TurnBody] = ()) -> CompletionRequest:
    """Return what the body asks for after the messages `earlier`, under the id of the answer. Raises InputError."""
    extra = body.model_extra or {}
    refuse_options({name: extra.get(name) for name in _ELSEWHERE}, extra)
    form = body.output_format or (body.output_config.format if body.output_config is not None else None)
    answer = answer_form(body, answer_schema(form, "output_config/format"), "output_config/format")
    messages, toolbox = messages_of(body, earlier), toolbox_of(body)
    shaping = shaping_options(body)
    shaping["stop"] = (*(body.stop_sequences or ()), *shaping["stop"])
    is_free = answer.schema is None and not toolbox.forced
    return CompletionRequest(
        id=answer_id,
        model=body.model,
        messages=messages,
        toolbox=toolbox,
        schema=answer.schema,
        grammar=answer.grammar,
        max_tokens=limit_of(body.max_tokens),
        **shaping,
        whole=not body.stream,
        continues=is_free and may_be_continued(messages),
        thinking=thinking_of(body),
    )


def thinking_of(body: CountBody) -> Thinking:
    """Return how much the model is to think. Without `thinking`, clients expect the first block to be the answer."""
    return requested_thinking(body.thinking, None, None) or "off"


def toolbox_of(body: CountBody) -> ClientTools:
    """Return the tools that may be called. Raises InputError for one that only Anthropic's servers can carry out."""
    tools = []
    for index, tool in enumerate(body.tools or ()):
        if tool.type not in (None, "custom", "function"):
            what = f"is of type {tool.type!r}, which Anthropic's servers carry out"
            raise InputError(Problem(f"tools/{index}/type", what, "custom, with an input_schema"))
        tools.append(ClientTool(tool.name, tool.description or "", tool.input_schema or {}))
    choice: str | dict[str, Any] | None = None
    match body.tool_choice:
        case None:
            pass
        case ToolChoice(type="tool"):
            choice = {"name": body.tool_choice.name}
        case _:
            choice = "required" if body.tool_choice.type == "any" else body.tool_choice.type
    several = not (body.tool_choice is not None and body.tool_choice.disable_parallel_tool_use)
    return ClientTools.of(tools, choice, several)


def messages_of(body: CountBody, earlier: Sequence[TurnBody] = ()) -> list[Message]:
    """Return the system prompt and the conversation as messages for an engine. Raises InputError.

    `earlier` are messages that come before those of the body.
    """
    system = _text(body.system, "system")
    messages = [Message("system", system)] if system else []
    for index, turn in enumerate([*earlier, *body.messages], -len(earlier)):
        where = f"messages/{index}/content"
        if isinstance(turn.content, str):
            messages.append(Message(turn.role, turn.content))
        elif turn.role == "assistant":
            messages.append(_assistant_turn(turn.content, where))
        else:
            messages += _user_turn(turn.role, turn.content, where)
    return messages


def _assistant_turn(blocks: Sequence[Block], where: str) -> Message:
    """Return an earlier answer: its text and its calls, without its thoughts."""
    calls = tuple(
        ToolCall(block.id or "", block.name or "", json.dumps(block.input or {}, ensure_ascii=False))
        for block in blocks
        if block.type == "tool_use"
    )
    return Message("assistant", _text([block for block in blocks if block.type != "tool_use"], where), calls)


def _user_turn(role: str, blocks: Sequence[Block], where: str) -> Iterator[Message]:
    """Yield the results of tools, and what the user says between and after them, in their order."""
    said: list[Block] = []
    for index, block in enumerate(blocks):
        if block.type != "tool_result":
            said.append(block)
            continue
        if said:
            yield Message(role, _text(said, where))
            said = []
        result = _text(block.content, f"{where}/{index}/content")
        yield Message("tool", f"Error: {result}" if block.is_error else result, tool_call_id=block.tool_use_id or "")
    if said or not blocks:
        yield Message(role, _text(said, where))


def _text(content: str | Sequence[Block] | None, where: str) -> str:
    """Return the text of some blocks, joined by line breaks. Thoughts are passed over.

    Raises InputError for a block that holds no text; `where` is the path to the blocks.
    """
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for index, block in enumerate(content):
        match block.type:
            case "text" if block.text is not None:
                texts.append(block.text)
            case "document" if block.source is not None and block.source.type == "text":
                texts.append("\n".join(part for part in (block.title, block.source.data) if part))
            case "thinking" | "redacted_thinking":
                pass
            case _:
                raise InputError(Problem(f"{where}/{index}", _refused(block), ACCEPTED_BLOCKS))
    return "\n".join(texts)


def _refused(block: Block) -> str:
    if block.type == "document" and block.source is not None:
        return (
            f"is a document from a source of type {block.source.type!r} ({block.source.media_type or 'any media type'})"
        )
    return refused_part(block.type)
