"""Offer functions to a model, and check its calls of them.

If the model's chat template takes tools (`registry.call_syntax`), the template gets them, and the model calls them in
the syntax that it was trained on. Any other model is told in the prompt to answer with the JSON object `{"tool": NAME,
"arguments": {...}}`, or only with the arguments if one certain tool has to be called. `calling` reads the calls.

This imports nothing of the HTTP server, so that the command line can try a model's calls with it.
"""

import contextlib
import json
import secrets
import string
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from orchestrator.engine.client.grammar import (
    MAX_CALLS,
    MOST_SECONDS,
    arguments_grammar,
    calls_grammar,
    left_to_validator,
    rebased,
)
from orchestrator.engine.contract import MAX_CALL_GRAMMARS_BYTES, Generation, GuidedCalls, OfferedTool
from orchestrator.engine.errors import BadGrammar
from orchestrator.engine.tool_calls import ToolCallParser
from orchestrator.errors import InputError, Problem
from orchestrator.registry.call_syntax import REMOTE, CallSyntax
from orchestrator.task.taskir.fields import MAX_DEPTH
from orchestrator.task.taskir.validation import MAX_SCHEMA, BadSchema, OutputSchema, SchemaMismatch

MAX_TOOLS: Final = 128
MOST_ASKED: Final = 3  # attempts at an answer that has to obey a schema or be a call
MOST_ASKED_FREELY: Final = 2  # attempts if the model may call tools but need not
_ID_LETTERS: Final = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class ClientTool:
    """A function that the client offers and runs."""

    name: str
    description: str
    parameters: Mapping[str, Any]  # JSON Schema of the arguments; empty for none

    @property
    def schema(self) -> dict[str, Any]:
        return dict(self.parameters) or {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class ClientTools:
    """The tools that the model may call in one answer."""

    tools: tuple[ClientTool, ...] = ()
    forced: bool = False  # whether the answer has to be a call
    parallel: bool = True  # whether one answer may hold several calls

    @classmethod
    def of(
        cls, tools: Sequence[ClientTool], choice: str | Mapping[str, Any] | None, parallel: bool | None = None
    ) -> "ClientTools":
        """Return the tools that may be called with these `tool_choice` and `parallel_tool_calls`.

        The choice is none, auto, required, the name of one tool, or `allowed_tools`, which names some of them. Raises
        InputError for another choice, and for a tool whose parameters are not a JSON Schema.
        """
        for tool in tools:
            _check_depth(tool)
        if (size := sum(len(json.dumps(tool.parameters)) for tool in tools)) > MAX_SCHEMA:
            problem = f"the parameters of all tools have {size} characters"
            raise InputError(Problem("tools", problem, f"at most {MAX_SCHEMA}"))
        for tool in tools:
            _check(tool)
        several = parallel is not False
        if isinstance(choice, Mapping) and choice.get("type") == "allowed_tools":
            tools, choice = _allowed(tools, choice)
        if choice is None or choice == "auto":
            return cls(tuple(tools), False, several)
        if choice == "none":
            return cls()
        if choice == "required" and tools:
            return cls(tuple(tools), True, several)
        named = _named(choice)
        matches = tuple(tool for tool in tools if tool.name == named)
        if not matches:
            if not tools:
                raise InputError(Problem("tool_choice", f"{choice!r} needs tools, and there are none", "none, auto"))
            names = ", ".join(tool.name for tool in tools)
            accepted = f"none, auto, required, allowed_tools, or a function: {names}"
            raise InputError(Problem("tool_choice", f"{choice!r} is not supported", accepted))
        return cls(matches, True, parallel=False)

    @property
    def offered(self) -> tuple[OfferedTool, ...]:
        return tuple(
            OfferedTool(tool.name, tool.description, json.dumps(tool.schema, ensure_ascii=False)) for tool in self.tools
        )

    @property
    def schemas(self) -> dict[str, dict[str, Any]]:
        return {tool.name: tool.schema for tool in self.tools}

    @property
    def only(self) -> ClientTool | None:
        """The tool that has to be called, if it is the only one."""
        return self.tools[0] if self.forced and len(self.tools) == 1 else None

    @property
    def instructions(self) -> str:
        """The description of the tools for a model whose template takes none; empty if there are none."""
        if not self.tools:
            return ""
        listed = [json.dumps(_described(tool), ensure_ascii=False) for tool in self.tools]
        if self.only is not None:
            return "\n".join([f"Answer with the arguments of {self.only.name}, as JSON.", *listed])
        when = "Use one of these tools" if self.forced else "To use one of these tools"
        return "\n".join([f'{when}: answer with JSON, {{"tool": NAME, "arguments": {{...}}}}, only.', *listed])

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON Schema of the answer of such a model if it has to be a call, else None."""
        if not self.forced:
            return None
        return self.only.schema if self.only is not None else self.call_schema

    @property
    def call_schema(self) -> dict[str, Any]:
        """The JSON Schema of a call of any tool, as such a model writes it."""
        return {"anyOf": [_call_schema(tool, f"#/anyOf/{number}") for number, tool in enumerate(self.tools)]}

    def problem(self, name: str, arguments: str) -> str:
        """Return what is wrong with a call; empty if nothing is."""
        tool = next((tool for tool in self.tools if tool.name == name), None)
        if tool is None:
            return f"there is no tool {name!r:.80}; accepted: {', '.join(self.schemas) or 'none'}"
        try:
            value = OutputSchema(tool.schema).read(arguments)
        except (SchemaMismatch, BadSchema) as error:
            return f"the arguments of {name} do not match: {error}"
        return "" if isinstance(value, dict) else f"the arguments of {name} are no JSON object"


def _check_depth(tool: ClientTool) -> None:
    if _is_deeper(tool.parameters, MAX_DEPTH):
        where, problem = f"tools/{tool.name}/parameters", f"are nested more than {MAX_DEPTH} deep"
        raise InputError(Problem(where, problem, f"at most {MAX_DEPTH} levels"))


def _check(tool: ClientTool) -> None:
    try:
        OutputSchema(tool.parameters)
    except BadSchema as error:
        raise InputError(Problem(f"tools/{tool.name}/parameters", str(error), "a JSON Schema")) from error


def _is_deeper(value: object, most: int) -> bool:
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(most == 0 or _is_deeper(item, most - 1) for item in inner)


def _named(choice: str | Mapping[str, Any]) -> object:
    # Chats have the name in `function`, responses have it at the top.
    if isinstance(choice, str):
        return None
    function = choice.get("function")
    return function.get("name") if isinstance(function, Mapping) else choice.get("name")


def _allowed(
    tools: Sequence[ClientTool], choice: Mapping[str, Any]
) -> tuple[Sequence[ClientTool], str | Mapping[str, Any] | None]:
    # Chats have mode and tools in a field of the same name, responses have them next to the type.
    inner = choice.get("allowed_tools", choice)
    listed = inner.get("tools") if isinstance(inner, Mapping) else None
    mode = inner.get("mode", "auto") if isinstance(inner, Mapping) else None
    if not isinstance(listed, list) or mode not in ("auto", "required"):
        accepted = 'a list "tools" and a "mode", which is auto or required'
        raise InputError(Problem("tool_choice/allowed_tools", "has no tools, or no mode", accepted))
    names = [_named(entry) if isinstance(entry, Mapping) else None for entry in listed]
    offered_names = {tool.name for tool in tools}
    if unknown := [name for name in names if name not in offered_names]:
        accepted = ", ".join(tool.name for tool in tools) or "none"
        raise InputError(Problem("tool_choice/allowed_tools/tools", f"{unknown[0]!r:.80} is not offered", accepted))
    return [tool for tool in tools if tool.name in names], mode


def _described(tool: ClientTool) -> dict[str, Any]:
    return {"tool": tool.name, "description": tool.description, "arguments": tool.schema}


def _call_schema(tool: ClientTool, place: str) -> dict[str, Any]:
    # References inside of the parameters are rewritten, because these are no longer the whole schema.
    arguments = rebased(tool.schema, f"{place}/properties/arguments")
    properties = {"tool": {"const": tool.name}, "arguments": arguments}
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTask:
    """What one answer has to be, and how its model writes calls."""

    toolbox: ClientTools
    syntax: CallSyntax | None  # None: the prompt says how to call
    schema: Mapping[str, Any] | bool | None = None  # of an answer that is not a call; None for any text
    guides: bool = True  # whether the engine enforces grammars and schemas; unknown for remote models

    @property
    def most_asked(self) -> int:
        return MOST_ASKED if self.toolbox.forced or self.schema is not None else MOST_ASKED_FREELY

    def parser(self, *, forced: bool) -> ToolCallParser:
        """Return the parser of an answer, which has to be a call if it is `forced`."""
        only = self.toolbox.only if self.syntax is None and forced else None
        syntax = self.syntax
        if syntax is not None and (forced or self.schema is not None):
            syntax = syntax.from_grammar
        return ToolCallParser(self.toolbox.schemas, syntax, None if only is None else only.name)

    @property
    def expressible(self) -> frozenset[str]:
        """The tools whose arguments a grammar forms completely, so that they can be streamed."""
        tools = self.toolbox.schemas.items() if self.guides else ()
        return frozenset(name for name, schema in tools if next(left_to_validator(schema), None) is None)

    def new_id(self) -> str:
        """Return an id for a call, in the form that the model's template expects."""
        if self.syntax is not None and self.syntax.id_letters:
            return "".join(secrets.choice(_ID_LETTERS) for _ in range(self.syntax.id_letters))
        return f"call_{secrets.token_hex(12)}"


def with_tools(generation: Generation, task: CallTask) -> Generation:
    """Return the engine's request with the tools and the grammars of their calls. Raises BadGrammar."""
    toolbox, syntax = task.toolbox, task.syntax
    if syntax is None:
        return replace(generation, schema=_described_schema(task))
    if syntax is REMOTE:
        choice = "auto" if not toolbox.forced else "required" if toolbox.only is None else toolbox.only.name
        schema = None if toolbox.forced else _schema_of(task)
        return replace(generation, tools=toolbox.offered, tool_choice=choice, schema=schema)
    tools = tuple(toolbox.schemas.items())
    most = MAX_CALLS if toolbox.parallel else 1
    native = replace(generation, tools=toolbox.offered, schema=None)
    if toolbox.forced or task.schema is not None:
        answer = None if toolbox.forced else task.schema
        return replace(native, grammar=calls_grammar(syntax, tools, most=most, answer=answer))
    # A model that need not call is never made to: the grammar only applies to the arguments of a call that it starts.
    if syntax.arguments != "json":
        return native
    return replace(native, guided=_guided(syntax, tools))


def _guided(syntax: CallSyntax, tools: Sequence[tuple[str, Mapping[str, Any]]]) -> GuidedCalls | None:
    grammars: dict[str, str] = {}
    # All grammars together may take as long as one.
    end = time.thread_time() + MOST_SECONDS
    for name, schema in tools:
        if time.thread_time() > end:
            break
        # A tool without a grammar is offered all the same.
        with contextlib.suppress(BadGrammar):
            grammars[name] = arguments_grammar(syntax, schema)
    # Too large together: calls are then not guided.
    if sum(map(len, grammars.values())) > MAX_CALL_GRAMMARS_BYTES:
        return None
    return GuidedCalls(syntax.family, tuple(grammars.items()))


def _described_schema(task: CallTask) -> dict[str, Any] | bool | None:
    toolbox = task.toolbox
    if toolbox.forced or task.schema is None:
        return toolbox.schema
    if not isinstance(task.schema, Mapping) or not task.guides:
        return _schema_of(task)
    return {"anyOf": [rebased(toolbox.call_schema, "#/anyOf/0"), rebased(dict(task.schema), "#/anyOf/1")]}


def _schema_of(task: CallTask) -> dict[str, Any] | bool | None:
    return dict(task.schema) if isinstance(task.schema, Mapping) else task.schema
