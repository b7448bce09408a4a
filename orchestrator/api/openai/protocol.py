"""Define what the bodies of several endpoints share: messages, token ids, thinking, the format of an answer."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, cast

from pydantic import BeforeValidator, Field

from orchestrator.api.dependencies import Entries, LenientBody, at_most
from orchestrator.api.openai.given_files import FILE_TYPES, GivenFile
from orchestrator.api.openai.sampling import ANY_OBJECT, TokenId
from orchestrator.engine.contract import Message, ToolCall
from orchestrator.errors import InputError, Problem
from orchestrator.registry.options import MAX_CONTEXT
from orchestrator.registry.thinking import Thinking
from orchestrator.run.steps.role import ResolvedRole, step_messages
from orchestrator.run.steps.unshown import about_address, unshown
from orchestrator.task.taskir.validation import BadSchema, OutputSchema

# The tokens of one text. Only the first invalid one is reported: there may be millions.
TokenIds = Annotated[list[TokenId], Field(max_length=1 << 22, fail_fast=True)]
ThinkingBudget = Annotated[int, Field(ge=0, le=MAX_CONTEXT)]
RequestedEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
THINKING_ARGUMENTS: Final = ("enable_thinking", "thinking")  # variables of chat templates that switch thinking
# Words in the type of a message part, and what such a part holds.
_SENSES: Final = {"image": "a picture", "audio": "sound", "video": "a video"}
_EFFORTS: Final[dict[str, Thinking]] = {"none": "off", "minimal": "low", "xhigh": "high", "max": "high"}


class ThinkingBody(LenientBody):
    """How much the model may think, in the form of Anthropic's API."""

    type: Literal["enabled", "disabled", "adaptive"] = "enabled"
    budget_tokens: Annotated[int, Field(ge=1, le=MAX_CONTEXT)] | None = None


# The field `thinking` of a request.
ThinkingValue = Literal["auto", "on", "off", "low", "medium", "high"] | bool | ThinkingBudget | ThinkingBody
PlainWord = Annotated[str, Field(pattern=r"^[\w .,:/-]{0,64}$")]
# `chat_template_kwargs` in vLLM and llama-server.
TemplateArguments = Annotated[dict[str, bool | int | float | PlainWord | None], at_most(16)]


class FileBody(LenientBody):
    """A file: one that was uploaded, or its content as a `data:` address or in base64."""

    file_id: str | None = None
    file_data: str | None = None
    filename: str | None = None


class TextPart(FileBody):
    """A part of a message: text, or a file where a run answers.

    /v1/chat/completions has the fields of a file in `file`, and /v1/responses has them next to `type`.
    """

    type: str
    text: str | None = None
    file: FileBody | None = None
    image_url: str | dict[str, Any] | None = None


def _as_json(arguments: object) -> object:
    # Some clients send the parsed object.
    if not arguments:
        return "{}"
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


# Arguments of an earlier call: JSON as the model wrote it, or an object; null or "" for none.
EarlierArguments = Annotated[str, BeforeValidator(_as_json, json_schema_input_type=str | dict[str, Any] | None)]


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

    /v1/chat/completions has the schema in `json_schema`, and /v1/responses has it in `schema` next to `type`.
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
    """Return the text of a message, its parts joined by line breaks. Files are added to `files`.

    In a tool's result (`of_tool`), a line of text replaces each part without text. In other messages such a part raises
    InputError at `where`, the path to the content.
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
    file = part.file or part
    image = part.image_url.get("url") if isinstance(part.image_url, dict) else part.image_url
    address = image if isinstance(image, str) else file.file_data or ""
    kind = next((mark for mark in (*_SENSES, "file") if mark in part.type), part.type)
    return unshown(kind, file.filename or file.file_id or "", *about_address(address))


def left_out_tools(kinds: Sequence[str], accepted: str) -> tuple[str, ...]:
    """Return a warning for each tool that is not a function. `kinds` are the types of all tools; empty for functions.

    Raises InputError with `accepted` if there are tools, and none is a function.
    """
    left_out = [(index, kind) for index, kind in enumerate(kinds) if kind]
    if left_out and len(left_out) == len(kinds):
        index, kind = left_out[0]
        problem = f"{kind!r:.80} is not supported, and no tool is a function"
        raise InputError(Problem(f"tools/{index}/type", problem, accepted))
    return tuple(f"tools/{index}: a tool of the type {kind!r:.80} is left out" for index, kind in left_out)


def refused_part(kind: str) -> str:
    """Return why a message part of this type is refused."""
    if kind.endswith("text"):  # a part with a text is not refused
        return f"is of type {kind!r}, but has no text"
    sense = next((name for mark, name in _SENSES.items() if mark in kind), None)
    return f"is of type {kind!r}" if sense is None else f"is {sense} (type {kind!r}), which no model here can take in"


def _given_file(part: FileBody, where: str) -> GivenFile:
    if (part.file_id is None) == (part.file_data is None):
        problem = "has neither file_id nor file_data, or both"
        raise InputError(Problem(where, problem, "exactly one of them"))
    return GivenFile(where, part.filename or "", part.file_id, part.file_data or "")


def engine_messages(messages: Sequence[ChatMessage], files: list[GivenFile] | None = None) -> list[Message]:
    """Return the messages of a chat with the roles of an engine: system, user, assistant and tool.

    Files are added to `files`. Raises InputError for other content without text.
    """
    return [_engine_message(message, f"messages/{index}/content", files) for index, message in enumerate(messages)]


def prompt_messages(messages: Sequence[Message], role: ResolvedRole, instructions: str) -> tuple[Message, ...]:
    """Return the prompt that asks `role` to continue `messages`. Raises InputError if all are system messages.

    It starts with one system message: the role's system prompt, the persona, the client's system messages and
    `instructions` (how to call tools), in this order.
    """
    own = [message.content for message in messages if message.role == "system" and message.content]
    overlay = "\n".join(text for text in (role.persona, *own, instructions) if text)
    system = step_messages(role.system, overlay, (), "")[0].content.strip()
    turns = [_laid_out(message, role) for message in messages if message.role != "system"]
    if not turns:
        raise InputError(Problem("messages", 'no message with role "user"', "one at least"))
    return (Message("system", system), *turns) if system else tuple(turns)


def may_be_continued(messages: Sequence[Message]) -> bool:
    return bool(messages) and messages[-1].role == "assistant" and not messages[-1].tool_calls


def answer_schema(form: FormatBody | None, where: str) -> dict[str, Any] | bool | None:
    """Return the JSON Schema of an answer; None for any text.

    Raises InputError at `where`, the path to the format, if it is unknown or has no valid schema.
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
    """Return how much a request wants the model to think; None if it does not say.

    `thinking` has priority over `enable_thinking` in `chat_template_kwargs`, and that over `reasoning_effort`.
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
    variables = arguments or {}
    switch = next((variables[name] for name in THINKING_ARGUMENTS if name in variables), None)
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
    # An embedded model was only trained on the layout of a step's action.
    return message._replace(content=role.prompts.chat_prefix + message.content)
