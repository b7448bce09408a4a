"""What the model of a step with tools may answer, and how its answers are read. Pure."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.engine.client.grammar import rebased
from orchestrator.run.gates.planned import is_json
from orchestrator.run.steps.answer import ANY_JSON, AnswerShape
from orchestrator.run.steps.tools.contract import Tool
from orchestrator.task.taskir.json_text import read_json
from orchestrator.task.taskir.models import Step


class BadAction(Exception):
    """An answer that is no action, or none that is allowed now. The message says what is accepted."""


@dataclass(frozen=True, slots=True)
class UseTool:
    # The toolbox checks both.
    tool: str
    arguments: object


@dataclass(frozen=True, slots=True)
class Prune:
    # Of documents.
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FinishStep:
    answer: Any
    documents: tuple[str, ...] = ()  # ids of documents that are handed on with it


Action = UseTool | Prune | FinishStep


@dataclass(frozen=True, slots=True)
class Allowed:
    tools: Sequence[Tool]  # none under hard pressure, when the context is full
    shown: Collection[str]  # ids of documents that can be pruned
    kept: Collection[str]  # ids of documents that can be handed on


def action_schema(step: Step, allowed: Allowed) -> dict[str, Any]:
    # `$ref` in a tool's schema is resolved from the root of that schema, which lies inside this one.
    forms = [
        _object(tool={"const": tool.name}, arguments=rebased(tool.parameters, f"#/anyOf/{at}/properties/arguments"))
        for at, tool in enumerate(allowed.tools)
    ]
    if allowed.shown:
        forms.append(_object(prune=_id_list(allowed.shown)))
    answer = _answer_schema(step)
    if hands_on(step) and allowed.kept:
        forms.append(_object(finish=answer, documents=_id_list(allowed.kept)))
    return {"anyOf": [*forms, _object(finish=answer)]}


def read_action(text: str, allowed: Allowed) -> Action:
    """Return the action in an answer. Raises `BadAction`."""
    value, problems = read_json(text)
    if problems or not isinstance(value, dict):
        raise BadAction(f"that is no JSON object: {problems[0] if problems else type(value).__name__}")
    if "tool" in value:
        if not allowed.tools:
            raise BadAction("the context is full: no tool can be called; accepted: prune or finish")
        return UseTool(str(value["tool"]), value.get("arguments", {}))
    if "prune" in value:
        return Prune(_ids(value["prune"], allowed.shown, "prune"))
    if "finish" in value:
        return FinishStep(value["finish"], _ids(value.get("documents", []), allowed.kept, "documents"))
    raise BadAction('accepted: an object with "tool", "prune" or "finish"')


def hands_on(step: Step) -> bool:
    """Whether documents can be handed on with the answer: only if it is one text."""
    return len(step.outputs) == 1 and not is_json(step, step.outputs[0])


def _answer_schema(step: Step) -> dict[str, Any]:
    schema = AnswerShape(step).schema
    if schema is None:
        return {"type": "string"}
    # `$ref` is resolved from the root of its schema, which would be another root inside this one.
    return ANY_JSON if '"$ref"' in json.dumps(schema) else schema


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _id_list(ids: Collection[str]) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "maxItems": len(ids), "items": {"enum": list(ids)}}


def _ids(value: object, accepted_ids: Collection[str], field: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BadAction(f"{field}: accepted is a list of ids such as D1")
    if unknown := [item for item in value if item not in accepted_ids]:
        raise BadAction(f"{field}: there is no {unknown[0]}; accepted: {', '.join(accepted_ids) or 'none'}")
    return tuple(dict.fromkeys(value))


def instructions(how: str, action: str, tools: Sequence[Tool]) -> str:
    """Return the action, `how` the model has to answer (`PromptSet.tools`, ends above the list), and the tools."""
    return f"{action}\n\n{how}\n{described(tools)}"


def described(tools: Sequence[Tool]) -> str:
    """Return a line for each tool: its name, its arguments (optional ones with `?`), what it does."""
    return "\n".join(f"  {tool.name}({', '.join(_parameters(tool))})  {tool.description}" for tool in tools)


def _parameters(tool: Tool) -> list[str]:
    return [name if name in tool.required else f"{name}?" for name in tool.properties]
