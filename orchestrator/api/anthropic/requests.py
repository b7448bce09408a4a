"""Read the bodies of requests to /v1/messages: messages in blocks, tools, thinking, the format of the answer.

The fields are those of Anthropic's API (docs.anthropic.com, Messages). Unsupported options are refused by name. Inside
tool results, a line of text replaces each block without text. The same applies to calls and results of tools that
Anthropic's servers run: Claude Code sends both again with every later request of a conversation.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, model_validator

from orchestrator.api.dependencies import Entries, LenientBody
from orchestrator.api.openai.completion import CompletionRequest
from orchestrator.api.openai.protocol import (
    EarlierArguments,
    FormatBody,
    RequestedEffort,
    ThinkingBody,
    answer_schema,
    left_out_tools,
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
from orchestrator.registry.thinking import Thinking
from orchestrator.run.steps.unshown import about_address, size_of_base64, unshown

# Options that only Anthropic's servers, or only other APIs, have.
_ELSEWHERE: Final = (
    *("mcp_servers", "container", "compaction"),
    *("response_format", "logprobs", "top_logprobs", "n", "reasoning_effort"),
)
_BILLING: Final = "x-anthropic-billing-header:"
ACCEPTED_BLOCKS: Final = "text, tool_use, tool_result, thinking, redacted_thinking, document with plain text"
_THOUGHTS: Final = ("thinking", "redacted_thinking")


class BlockSource(LenientBody):
    """Where the content of a document or an image is."""

    type: str
    media_type: str = ""
    data: str = ""
    url: str = ""
    file_id: str = ""
    content: "str | list[Block] | None" = None


class Block(LenientBody):
    """A part of a message; `type` says which of the fields it has."""

    type: str
    text: str | None = None
    id: str | None = None
    name: str | None = None
    input: EarlierArguments = "{}"
    tool_use_id: str | None = None
    tool_name: str | None = None
    # Of a result; results of Anthropic's servers may be an object.
    content: "str | Entries[Block] | dict[str, Any] | None" = None
    is_error: bool | None = None
    source: BlockSource | str | None = None  # of a document or an image; of a search result, its address
    title: str | None = None
    url: str | None = None


class TurnBody(LenientBody):
    """A message of the conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | Entries[Block]


class CustomTool(LenientBody):
    """A function that the model may call. A tool that Anthropic's servers know is left out if another is a function."""

    type: str | None = None
    name: str = Field(default="", max_length=128)
    description: str | None = None
    input_schema: dict[str, Any] | None = None

    @property
    def is_function(self) -> bool:
        """Whether the client runs the tool and defines its arguments."""
        return self.type in (None, "custom", "function")

    @model_validator(mode="after")
    def _check_name(self) -> "CustomTool":
        if self.is_function and not self.name:
            raise ValueError("has no name; accepted: 1 to 128 characters")
        return self


class ToolChoice(LenientBody):
    """Whether a tool has to be called: `auto`, `any`, `tool` (the one with this name) or `none`."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class OutputConfig(LenientBody):
    """The format of the answer, and how much the model thinks before it."""

    format: FormatBody | None = None
    effort: RequestedEffort | None = None


class ThreadBody(LenientBody):
    """What the daemon keeps of the conversation, which Anthropic's API calls a thread.

    With `create` it keeps the messages and the answer under the answer's id. With `continue` the messages are those
    that follow the answer `previous_message_id`, and are kept with the new answer.
    """

    type: Literal["create", "continue"]
    previous_message_id: str | None = None


class CountBody(LenientBody):
    """A request to count the tokens of a prompt."""

    model_config = ConfigDict(extra="allow")

    model: str
    messages: Annotated[Entries[TurnBody], Field(min_length=1)]
    system: str | Entries[Block] | None = None
    tools: Annotated[list[CustomTool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: ThinkingBody | None = None
    output_config: OutputConfig | None = None


class MessagesBody(CountBody, SamplingBody):
    """A request for the next message of the assistant.

    Options that other servers have, and Anthropic's API has not, are honoured as in chats.
    """

    model_config = ConfigDict(extra="allow")

    max_tokens: MaxTokens
    stop_sequences: Annotated[list[str], Field(max_length=16)] | None = None
    stream: bool | None = None
    output_format: FormatBody | None = None
    thread: ThreadBody | None = None


def request_of(body: MessagesBody, answer_id: str, earlier: Sequence[TurnBody] = ()) -> CompletionRequest:
    """Return what the body requests after the messages `earlier`. Raises InputError."""
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
        warnings=_left_out(body),
    )


def thinking_of(body: CountBody) -> Thinking:
    """Return how much the model thinks. Without `thinking` it is off, because clients then expect an answer first.

    If `thinking` only says that the model thinks, the effort of `output_config` says how much.
    """
    thinking = requested_thinking(body.thinking, None, None) or "off"
    effort = body.output_config.effort if body.output_config is not None else None
    return requested_thinking(None, None, effort) or thinking if thinking in ("on", "auto") else thinking


def _left_out(body: CountBody) -> tuple[str, ...]:
    kinds = ["" if tool.is_function else tool.type or "" for tool in body.tools or ()]
    return left_out_tools(kinds, "custom, with an input_schema")


def toolbox_of(body: CountBody) -> ClientTools:
    """Return the tools that may be called. Raises InputError if tools are given and none is a function."""
    _left_out(body)  # raises InputError if no tool is a function
    tools = [
        ClientTool(tool.name, tool.description or "", tool.input_schema or {})
        for tool in body.tools or ()
        if tool.is_function
    ]
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
    """Return the system prompt, the messages `earlier` and those of the body for an engine. Raises InputError."""
    system = _without_metadata(_text(body.system, "system"))
    messages = [Message("system", system)] if system else []
    # Errors count from the first message of the body; earlier messages have negative indices.
    for index, turn in enumerate([*earlier, *body.messages], -len(earlier)):
        where = f"messages/{index}/content"
        if isinstance(turn.content, str):
            messages.append(Message(turn.role, turn.content))
        elif turn.role == "assistant":
            messages.append(_assistant_turn(turn.content, where))
        else:
            messages += _user_turn(turn.role, turn.content, where)
    return messages


def _without_metadata(system: str) -> str:
    # Claude Code starts the system prompt with a billing line that holds a checksum of the request. With it, no two
    # requests would share a prefix.
    first, _, rest = system.partition("\n")
    return rest if first.startswith(_BILLING) else system


def _assistant_turn(blocks: Sequence[Block], where: str) -> Message:
    calls = tuple(
        ToolCall(block.id or "", block.name or "", block.input) for block in blocks if block.type == "tool_use"
    )
    return Message("assistant", _text([block for block in blocks if block.type != "tool_use"], where), calls)


def _user_turn(role: str, blocks: Sequence[Block], where: str) -> Iterator[Message]:
    parts: list[Block] = []
    for block in blocks:
        if block.type != "tool_result":
            parts.append(block)
            continue
        if parts:
            yield Message(role, _text(parts, where))
            parts = []
        result = _lines(block.content)
        yield Message("tool", f"Error: {result}" if block.is_error else result, tool_call_id=block.tool_use_id or "")
    if parts or not blocks:
        yield Message(role, _text(parts, where))


def _text(content: str | Sequence[Block] | None, where: str) -> str:
    # Thoughts are skipped. `where` is the path to the blocks, for errors.
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for index, block in enumerate(content):
        text = _text_of_block(block)
        if text is None and _is_of_server(block):
            text = _line_of(block)
        if text is None:
            raise InputError(Problem(f"{where}/{index}", _refused(block), ACCEPTED_BLOCKS))
        texts += [] if block.type in _THOUGHTS else [text]
    return "\n".join(texts)


def _text_of_block(block: Block) -> str | None:
    # Returns None for a block without text, and an empty text for thoughts.
    source = block.source
    match block.type:
        case "text":
            return block.text
        case "document" if isinstance(source, BlockSource) and source.type == "text":
            return "\n".join(part for part in (block.title, source.data) if part)
        case "document" if isinstance(source, BlockSource) and source.type == "content":
            return "\n".join(part for part in (block.title, _lines(source.content)) if part)
        case "search_result":
            about = [block.title or "", source if isinstance(source, str) else ""]
            return "\n".join(part for part in (*about, _lines(block.content)) if part)
        case kind if kind in _THOUGHTS:
            return ""
    return None


def _is_of_server(block: Block) -> bool:
    # These are calls and results of tools that Anthropic's servers run.
    return block.type not in ("tool_use", "tool_result") and block.type.endswith(("tool_use", "_tool_result"))


def _lines(content: str | Sequence[Block] | dict[str, Any] | None) -> str:
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    texts = (_line_of(block) if (text := _text_of_block(block)) is None else text for block in content)
    return "\n".join(filter(None, texts))


def _line_of(block: Block) -> str:
    # Returns the line that replaces a block without text.
    source = block.source
    if isinstance(source, BlockSource):
        size = (source.media_type, size_of_base64(source.data)) if source.data else ()
        return unshown(block.type, block.title or "", *size, *about_address(source.url), source.file_id)
    if block.type.endswith("tool_use"):
        return f"[{block.type}, {block.name}: {block.input}]"
    if block.type == "tool_reference":
        return f"[{block.type}, {block.tool_name or block.name}]"
    return _lines(block.content) or unshown(block.type, block.title or "", block.url or "")


def _refused(block: Block) -> str:
    if block.type == "document" and isinstance(block.source, BlockSource):
        return (
            f"is a document from a source of type {block.source.type!r} ({block.source.media_type or 'any media type'})"
        )
    return refused_part(block.type)
