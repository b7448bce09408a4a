"""Offer functions to a model, and parse its calls of them.

A call is the JSON object `{"tool": NAME, "arguments": {...}}`, or only the arguments where one certain tool has to be
called. Where the model has to call a tool, a grammar makes sure that it does. Where it may, an answer that is a valid
call counts as one, and any other answer is text. A call counts in the forms that models were trained on, too: with
`name` and `parameters`, in a list, in a code block, or in the tag `tool_call`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.errors import InputError, Problem
from orchestrator.gates.json_schema import BadSchema, OutputSchema, SchemaMismatch
from orchestrator.taskir import MAX_DEPTH

MAX_TOOLS: Final = 128

_FORMS: Final = (("tool", "arguments"), ("name", "arguments"), ("name", "parameters"))
"""The keys of the name and of the arguments of a call: those that the instructions ask for, and those that models were
trained on."""
_TAG: Final = "<tool_call>"
_WRAPPED: Final = re.compile(r"```(?:json)?\s(?P<fenced>.*)```|<tool_call>(?P<tagged>.*)</tool_call>", re.DOTALL)
_BEGUN: Final = re.compile(r"`{1,3}|```(?:j|js|jso|json)|(?:```(?:json)?\s+)?(?:\[?\s*(?:\{.*)?)", re.DOTALL)
"""The beginning of a call: a code block, and in it perhaps a list, with an object."""


@dataclass(frozen=True, slots=True)
class ClientTool:
    """A function that the client offers, and carries out itself."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """The JSON Schema of the arguments, as the client gives it; empty for a function without any."""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        return dict(self.parameters) or {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class ParsedToolCall:
    """A model's call of a tool."""

    name: str
    arguments: str
    """JSON that matches the tool's schema."""


@dataclass(frozen=True, slots=True)
class ClientTools:
    """The tools that the model may call in its answer to one request."""

    tools: tuple[ClientTool, ...] = ()
    forced: bool = False
    """Whether the answer has to be a call of one of them."""

    @classmethod
    def of(cls, tools: Sequence[ClientTool], choice: str | Mapping[str, Any] | None) -> "ClientTools":
        """Return the tools that may be called with this `tool_choice`: none, auto, required, or the name of one.

        Raises InputError for another choice, and for a tool whose parameters are no JSON Schema.
        """
        for tool in tools:
            _check(tool)
        if choice is None or choice == "auto":
            return cls(tuple(tools))
        if choice == "none":
            return cls()
        if choice == "required" and tools:
            return cls(tuple(tools), True)
        named = _named(choice)
        found = tuple(tool for tool in tools if tool.name == named)
        if not found:
            names = ", ".join(tool.name for tool in tools)
            accepted = f"none, auto, required, or a function: {names or 'there is none'}"
            raise InputError(Problem("tool_choice", f"{choice!r} is not supported", accepted))
        return cls(found, True)

    @property
    def instructions(self) -> str:
        """The text that describes the tools to the model, and how to call them; empty where there are none."""
        if not self.tools:
            return ""
        listed = [json.dumps(_described(tool), ensure_ascii=False) for tool in self.tools]
        if self._only is not None:
            return "\n".join([f"Answer with the arguments of {self._only.name}, as JSON.", *listed])
        when = "Use one of these tools" if self.forced else "To use one of these tools"
        return "\n".join([f'{when}: answer with JSON, {{"tool": NAME, "arguments": {{...}}}}, only.', *listed])

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON Schema of the answer where it has to be a call, else None."""
        if not self.forced:
            return None
        if self._only is not None:
            return self._only.schema
        return {"anyOf": [_call_schema(tool, f"#/anyOf/{number}") for number, tool in enumerate(self.tools)]}

    def parse(self, text: str) -> ParsedToolCall | None:
        """Return the call that an answer is, or None for an answer that is text."""
        if not self.tools:
            return None
        if self._only is not None:
            return _valid(self._only, text.strip())
        name, arguments = _named_call(text) or ("", None)
        tool = next((tool for tool in self.tools if tool.name == name), None)
        return None if tool is None else _valid(tool, json.dumps(arguments, ensure_ascii=False))

    @property
    def _only(self) -> ClientTool | None:
        """The tool that has to be called, where it is the only one."""
        return self.tools[0] if self.forced and len(self.tools) == 1 else None


class ToolCallBuffer:
    """Holds back the text of a streamed answer while it may still turn out to be a tool call.

    Text that cannot be a call passes through at once. A call is only known as one when the answer is complete.
    """

    def __init__(self, toolbox: ClientTools) -> None:
        self._toolbox = toolbox
        self._held = ""
        self._is_text = not toolbox.tools

    def push(self, piece: str) -> str:
        """Take the next piece of the answer, and return the text that can be sent now, which may be empty."""
        if self._is_text:
            return piece
        self._held += piece
        begun = self._held.lstrip()
        self._is_text = bool(begun) and not self._toolbox.forced and not _may_become_call(begun)
        return self._held if self._is_text else ""

    def finish(self, text: str) -> tuple[str, ParsedToolCall | None]:
        """Return the text that is still to be sent, and the call that the complete answer `text` is, if it is one."""
        if self._is_text:
            return "", None
        call = self._toolbox.parse(text)
        return ("" if call is not None else self._held), call


def _named_call(text: str) -> tuple[str, object] | None:
    """Return the name and the arguments of the call that a text is, in one of the forms that models know; else None."""
    text = text.strip()
    if wrapped := _WRAPPED.fullmatch(text):
        text = wrapped["fenced"] or wrapped["tagged"] or ""
    try:
        call = json.loads(text)
    except (ValueError, RecursionError):  # a model may write brackets without end
        return None
    if isinstance(call, list) and len(call) == 1:
        call = call[0]
    for name, arguments in _FORMS:
        if isinstance(call, dict) and call.keys() == {name, arguments} and isinstance(call[name], str):
            return call[name], call[arguments]
    return None


def _may_become_call(begun: str) -> bool:
    """Return whether a text that begins so, without white space in front, may be a call when it is complete."""
    return begun.startswith(_TAG) or _TAG.startswith(begun) or _BEGUN.fullmatch(begun) is not None


def _check(tool: ClientTool) -> None:
    where = f"tools/{tool.name}/parameters"
    if _is_deeper(tool.parameters, MAX_DEPTH):
        raise InputError(Problem(where, f"are nested more than {MAX_DEPTH} deep", f"at most {MAX_DEPTH} levels"))
    try:
        OutputSchema(tool.parameters)
    except BadSchema as error:
        raise InputError(Problem(where, str(error), "a JSON Schema")) from error


def _is_deeper(value: object, most: int) -> bool:
    """Return whether a value is nested more than `most` levels deep. It looks no deeper than that."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(most == 0 or _is_deeper(one, most - 1) for one in inner)


def _named(choice: str | Mapping[str, Any]) -> object:
    """Return the name of the tool in the `tool_choice` of a chat or a response, None where it has none."""
    if isinstance(choice, str):
        return None
    function = choice.get("function")
    return function.get("name") if isinstance(function, Mapping) else choice.get("name")


def _valid(tool: ClientTool, arguments: str) -> ParsedToolCall | None:
    try:
        OutputSchema(tool.schema).read(arguments)
    except (SchemaMismatch, BadSchema):
        return None
    return ParsedToolCall(tool.name, arguments)


def _described(tool: ClientTool) -> dict[str, Any]:
    return {"tool": tool.name, "description": tool.description, "arguments": tool.schema}


def _call_schema(tool: ClientTool, place: str) -> dict[str, Any]:
    """Return the schema of a call of the tool, at the JSON pointer `place` in the schema of the answer.

    References inside the tool's parameters are rewritten, because the parameters are no longer the whole schema.
    """
    arguments = _rebased(tool.schema, f"{place}/properties/arguments")
    properties = {"tool": {"const": tool.name}, "arguments": arguments}
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _rebased(schema: Any, place: str) -> Any:
    if isinstance(schema, list):
        return [_rebased(item, place) for item in schema]
    if not isinstance(schema, dict):
        return schema
    rebased = {key: _rebased(value, place) for key, value in schema.items()}
    if isinstance(target := rebased.get("$ref"), str) and (target == "#" or target.startswith("#/")):
        rebased["$ref"] = place + target[1:]
    return rebased
