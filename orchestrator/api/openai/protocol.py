"""What requests of several endpoints have in common: messages, ids of tokens, thinking, the format of an answer.

Messages become those of an engine: the system message first, then the others in their order.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, cast

from pydantic import BeforeValidator, Field

from orchestrator.api.dependencies import Entries, LenientBody, at_most
from orchestrator.api.openai.given_files import FILE_TYPES, GivenFile
from orchestrator.api.openai.sampling import ANY_OBJECT, TokenId
from orchestrator.engine.contract import Message, ToolCall
from orchestrator.errors import InputError, Problem
from orchestrator.run.steps.prompt import step_messages
from orchestrator.run.steps.role import ResolvedRole
from orchestrator.run.steps.unshown import about_address, unshown
from orchestrator.task.taskir.validation import BadSchema, OutputSchema
from registry.options import MAX_CONTEXT
from registry.thinking import Thinking

TokenIds = Annotated[list[TokenId], Field(max_length=1 << 22, fail_fast=True)]
"""The tokens of one text. Of those that are no numbers only the first is reported: there may be millions."""
ThinkingBudget = Annotated[int, Field(ge=0, le=MAX_CONTEXT)]
RequestedEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
THINKING_ARGUMENTS: Final = ("enable_thinking", "thinking")
"""The variables of chat templates that say whether the model thinks."""
_SENSES: Final = {"image": "a picture", "audio": "sound", "video": "a video"}
"""What a part of a message holds whose type has one of these words in it."""
_EFFORTS: Final[dict[str, Thinking]] = {"none": "off", "minimal": "low", "xhigh": "high", "max": "high"}


class ThinkingBody(LenientBody):
    """How much the model shall think, as Anthropic's API has it."""

    type: Literal["enabled", "disabled", "adaptive"] = "enabled"
    budget_tokens: Annotated[int, Field(ge=1, le=MAX_CONTEXT)] | None = None


ThinkingValue = Literal["auto", "on", "off", "low", "medium", "high"] | bool | ThinkingBudget | ThinkingBody
"""The field `thinking` of a request."""
PlainWord = Annotated[str, Field(pattern=r"^[\w .,:/-]{0,64}$")]
TemplateArguments = Annotated[dict[str, bool | int | float | PlainWord | None], at_most(16)]
"""The field `chat_template_kwargs` of a request, as vLLM and llama-server have it."""


class FileBody(LenientBody):
    """A file: one that was uploaded, or its content as a `data:` address or in base64."""

    file_id: str | None = None
    file_data: str | None = None
    filename: str | None = None


class TextPart(FileBody):
    """A part of a message: text, or a file where a run answers.

    /v1/chat/completions has the fields of a file in `file`, and /v1/responses has them beside `type`.
    """

    type: str
    text: str | None = None
    file: FileBody | None = None
    image_url: str | dict[str, Any] | None = None


def _as_json(arguments: object) -> object:
    """Return the arguments of an earlier call as JSON. Some clients send what they have made of it."""
    if not arguments:
        return "{}"
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


EarlierArguments = Annotated[str, BeforeValidator(_as_json, json_schema_input_type=str | dict[str, Any] | None)]
"""The arguments of an earlier call: JSON, as the model wrote it, or the object itself; null or "" for none."""


class FunctionCall(LenientBody):
    """A function call that the model made earlier."""

    name: str
    arguments: EarlierArguments = "{}"


class ToolCallBody(LenientBody):
    """One of the tool calls of an earlier message of the assistant."""

    id: str = ""
    function: FunctionCall


class ChatMessage(LenientBody):
    """One message of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | Entries[TextPart] | None = None
    tool_calls: Entries[ToolCallBody] | None = None
    tool_call_id: str | None = None


class SchemaBody(LenientBody):
    """A JSON Schema with a name."""

    name: str = ""
    json_schema: dict[str, Any] | bool | None = Field(default=None, alias="schema")


class FormatBody(LenientBody):
    """The format of an answer. `type` is text, json_object or json_schema.

    /v1/chat/completions has the schema in `json_schema`, and /v1/responses has it in `schema` beside `type`.
    """

    type: str
    json_schema: SchemaBody | None = None
    json_schema_flat: dict[str, Any] | bool | None = Field(default=None, alias="schema")


def text_of(
    content: str | Sequence[TextPart] | None,
    where: str,
    files: list[GivenFile] | None = None,
    *,
    of_tool: bool = False,
) -> str:
    """Return the text of a message, its parts joined by line breaks. Files among them are added to `files`.

    In the result of a tool (`of_tool`) a line stands for each part that is no text. Elsewhere InputError is raised for
    a part that is neither text nor, if there is a list of `files`, a file; `where` is the path to the content.
    """
    if content is None or isinstance(content, str):
        return content or ""
    texts: list[str] = []
    for index, part in enumerate(content):
        if files is not None and part.type in FILE_TYPES:
            files.append(_given_file(part.file or part, f"{where}/{index}"))
        elif part.text is not None:
            texts.append(part.text)
        elif of_tool:
            texts.append(_line_of(part))
        else:
            raise InputError(Problem(f"{where}/{index}", refused_part(part.type), "text"))
    return "\n".join(texts)


def _line_of(part: TextPart) -> str:
    """Return the line that stands for a part of a tool's result that is no text."""
    file = part.file or part
    image = part.image_url.get("url") if isinstance(part.image_url, dict) else part.image_url
    address = image if isinstance(image, str) else file.file_data or ""
    kind = next((mark for mark in (*_SENSES, "file") if mark in part.type), part.type)
    return unshown(kind, file.filename or file.file_id or "", *about_address(address))


def left_out_tools(kinds: Sequence[str], accepted: str) -> tuple[str, ...]:
    """Return a warning for each tool that is no function, by the types of all tools: empty for a function.

    Raises InputError if there are tools, and none is a function. Its message names what is `accepted`.
    """
    others = [(index, kind) for index, kind in enumerate(kinds) if kind]
    if others and len(others) == len(kinds):
        index, kind = others[0]
        what = f"{kind!r:.80} is not supported, and no tool is a function"
        raise InputError(Problem(f"tools/{index}/type", what, accepted))
    return tuple(f"tools/{index}: a tool of the type {kind!r:.80} is left out" for index, kind in others)


def refused_part(kind: str) -> str:
    """Return what is wrong with a part of a message that holds no text, by its type."""
    what = next((name for mark, name in _SENSES.items() if mark in kind), None)
    return f"is of type {kind!r}" if what is None else f"is {what} (type {kind!r}), which no model here can take in"


def _given_file(part: FileBody, where: str) -> GivenFile:
    if (part.file_id is None) == (part.file_data is None):
        what = "has neither file_id nor file_data, or both"
        raise InputError(Problem(where, what, "exactly one of them"))
    return GivenFile(where, part.filename or "", part.file_id, part.file_data or "")


def engine_messages(messages: Sequence[ChatMessage], files: list[GivenFile] | None = None) -> list[Message]:
    """Return the messages of a chat with the roles that an engine knows: system, user, assistant and tool.

    Files are added to `files`. Raises InputError for other content that is no text.
    """
    return [_engine_message(message, f"messages/{index}/content", files) for index, message in enumerate(messages)]


def prompt_messages(messages: Sequence[Message], role: ResolvedRole, instructions: str) -> tuple[Message, ...]:
    """Return the prompt that asks `role` to go on with `messages`.

    One system message comes first. It has the role's system prompt, the persona, the client's own system messages and
    `instructions` (how to call tools), in this order. The messages of the user go to the model as they are; only a role
    of an embedded model gets them in the layout of a step's action, which is all that it was trained on. Raises
    InputError where no message is left but system messages.
    """
    own = [message.content for message in messages if message.role == "system" and message.content]
    overlay = "\n".join(text for text in (role.persona, *own, instructions) if text)
    system = step_messages(role.system, overlay, (), "")[0].content.strip()
    turns = [_laid_out(message, role) for message in messages if message.role != "system"]
    if not turns:
        raise InputError(Problem("messages", "none is of a user", "one message of the role user at least"))
    return (Message("system", system), *turns) if system else tuple(turns)


def may_be_continued(messages: Sequence[Message]) -> bool:
    """Return whether the last message is one of the assistant's that an answer may go on with."""
    return bool(messages) and messages[-1].role == "assistant" and not messages[-1].tool_calls


def answer_schema(form: FormatBody | None, where: str) -> dict[str, Any] | bool | None:
    """Return the JSON Schema that an answer has to match, or None where it may be any text.

    Raises InputError for a format that is unknown or has no valid schema; `where` is the path to the format.
    """
    if form is None or form.type == "text":
        return None
    if form.type == "json_object" and form.json_schema is None and form.json_schema_flat is None:
        return dict(ANY_OBJECT)
    if form.type == "json_object":  # llama-server takes a schema here too
        form = form.model_copy(update={"type": "json_schema"})
    if form.type != "json_schema":
        raise InputError(Problem(f"{where}/type", f"{form.type!r} is not known", "text, json_object, json_schema"))
    schema = form.json_schema.json_schema if form.json_schema is not None else form.json_schema_flat
    if schema is None:
        raise InputError(Problem(f"{where}/json_schema", "there is no schema", "a JSON Schema"))
    if isinstance(schema, Mapping):
        try:
            OutputSchema(schema)
        except BadSchema as error:
            raise InputError(Problem(f"{where}/json_schema/schema", str(error), "a JSON Schema")) from error
    return schema


def requested_thinking(
    thinking: ThinkingValue | None, arguments: Mapping[str, object] | None, effort: RequestedEffort | None
) -> Thinking | None:
    """Return how much a request wants the model to think; None where it does not say so.

    The field `thinking` goes before `enable_thinking` in `chat_template_kwargs`, and that before `reasoning_effort`.
    """
    match thinking:
        case None:
            pass
        case bool():
            return "on" if thinking else "off"
        case ThinkingBody(type="enabled"):
            return thinking.budget_tokens or "on"
        case ThinkingBody():
            return "off" if thinking.type == "disabled" else "auto"
        case _:
            return thinking
    given = arguments or {}
    switch = next((given[name] for name in THINKING_ARGUMENTS if name in given), None)
    if isinstance(switch, bool):
        return "on" if switch else "off"
    return None if effort is None else cast(Thinking, _EFFORTS.get(effort, effort))


def _engine_message(message: ChatMessage, where: str, files: list[GivenFile] | None) -> Message:
    if message.role in ("tool", "function"):
        result = text_of(message.content, where, files, of_tool=True)
        return Message("tool", result, tool_call_id=message.tool_call_id or "")
    text = text_of(message.content, where, files)
    match message.role:
        case "system" | "developer":
            return Message("system", text)
        case "assistant":
            calls = (
                ToolCall(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()
            )
            return Message("assistant", text, tuple(calls))
        case _:
            return Message(message.role, text)


def _laid_out(message: Message, role: ResolvedRole) -> Message:
    if not role.name or message.role != "user":
        return message
    return message._replace(content=role.prompts.chat_prefix + message.content)
