"""Offer functions to a model, and read its calls of them.

A call is JSON, `{"tool": NAME, "arguments": {...}}`. Where one has to be made, the grammar sees to it; where it may be
made, an answer that is a valid call counts as one, and anything else is text.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.errors import InputError, Problem
from orchestrator.gates.json_schema import BadSchema, OutputSchema, SchemaMismatch
from orchestrator.taskir import MAX_DEPTH

MAX_TOOLS: Final = 128


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the client carries out. `parameters` is a JSON Schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """A model's wish to have a tool used. `arguments` is JSON."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools of one request. `forced`: one of them has to be called."""

    tools: tuple[Tool, ...] = ()
    forced: bool = False

    @classmethod
    def of(cls, tools: Sequence[Tool], choice: str | Mapping[str, Any] | None) -> "Toolbox":
        """Return what may be called. `choice` is none, auto, required, or names one tool. Raises InputError."""
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
            raise InputError(Problem("tool_choice", f"{choice!r} cannot be had", accepted))
        return cls(found, True)

    @property
    def instructions(self) -> str:
        """What the model is told of the tools."""
        if not self.tools:
            return ""
        listed = [json.dumps(_described(tool), ensure_ascii=False) for tool in self.tools]
        if self._only is not None:
            return "\n".join([f"Answer with the arguments of {self._only.name}, as JSON.", *listed])
        when = "Use one of these tools" if self.forced else "To use one of these tools"
        return "\n".join([f'{when}: answer with JSON, {{"tool": NAME, "arguments": {{...}}}}, only.', *listed])

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON Schema of an answer, where it has to be a call."""
        if not self.forced:
            return None
        if self._only is not None:
            return dict(self._only.parameters)
        return {"anyOf": [_call_schema(tool, f"#/anyOf/{number}") for number, tool in enumerate(self.tools)]}

    def read(self, text: str) -> Call | None:
        """Return the call that an answer is, or None for text."""
        if not self.tools:
            return None
        if self._only is not None:
            return _valid(self._only, text.strip())
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):  # a model may write brackets without end
            return None
        if not isinstance(said, dict) or said.keys() != {"tool", "arguments"}:
            return None
        tool = next((tool for tool in self.tools if tool.name == said["tool"]), None)
        return None if tool is None else _valid(tool, json.dumps(said["arguments"], ensure_ascii=False))

    @property
    def _only(self) -> Tool | None:
        """The tool that has to be called, where it is the only one."""
        return self.tools[0] if self.forced and len(self.tools) == 1 else None


class Withheld:
    """Lets the text of a streamed answer through, unless it may be a call, which is only told at its end."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox
        self._text = ""
        self._open = not toolbox.tools

    def take(self, piece: str) -> str:
        """Return what may be told now that `piece` has come."""
        if self._open:
            return piece
        self._text += piece
        begun = self._text.lstrip()
        self._open = bool(begun) and not begun.startswith("{") and not self._toolbox.forced
        return self._text if self._open else ""

    def end(self, text: str) -> tuple[str, Call | None]:
        """Return the text that is left to tell, or the call that the whole `text` of the answer is."""
        if self._open:
            return "", None
        call = self._toolbox.read(text)
        return ("" if call is not None else self._text), call


def _check(tool: Tool) -> None:
    where = f"tools/{tool.name}/parameters"
    if _is_deeper(tool.parameters, MAX_DEPTH):
        raise InputError(Problem(where, f"are nested more than {MAX_DEPTH} deep", f"at most {MAX_DEPTH} levels"))
    try:
        OutputSchema(tool.parameters)
    except BadSchema as error:
        raise InputError(Problem(where, str(error), "a JSON Schema")) from error


def _is_deeper(value: object, most: int) -> bool:
    """Return whether a value is nested more than `most` deep; no further than that is looked."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(most == 0 or _is_deeper(one, most - 1) for one in inner)


def _named(choice: str | Mapping[str, Any]) -> object:
    """Return the name in a choice, in the form of either API."""
    if isinstance(choice, str):
        return None
    function = choice.get("function")
    return function.get("name") if isinstance(function, Mapping) else choice.get("name")


def _valid(tool: Tool, arguments: str) -> Call | None:
    try:
        OutputSchema(tool.parameters).read(arguments)
    except (SchemaMismatch, BadSchema):
        return None
    return Call(tool.name, arguments)


def _described(tool: Tool) -> dict[str, Any]:
    return {"tool": tool.name, "description": tool.description, "arguments": dict(tool.parameters)}


def _call_schema(tool: Tool, place: str) -> dict[str, Any]:
    """Return the schema of a call. References inside of the parameters point to where these now are."""
    arguments = _moved(dict(tool.parameters), f"{place}/properties/arguments")
    properties = {"tool": {"const": tool.name}, "arguments": arguments}
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _moved(schema: Any, place: str) -> Any:
    if isinstance(schema, list):
        return [_moved(item, place) for item in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {key: _moved(value, place) for key, value in schema.items()}
    if isinstance(target := moved.get("$ref"), str) and target.startswith("#"):
        moved["$ref"] = place + target[1:]
    return moved
