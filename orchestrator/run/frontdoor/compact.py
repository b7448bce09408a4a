"""Read the compact form in which a model writes a plan, part by part while it is written.

    {"plan":[{"role":"worker","action":"Summarize {each}.","each":["a.txt","b","*.md"]},
             {"role":"worker","action":"Compare the summaries.","inputs":["P1"],"output":"report.md"}]}

A part is one step, or with `each` one step for each name there. The name replaces `{each}` in the action and in the
output; the step reads it if it is a file or an output, else it is a word of the request, such as a language. A part
that writes several files has `outputs`. An output with the name of an input is a new version of it. `P1` stands for all
outputs of the first part. Other names are files (by name, stem or pattern), or `request` for the text of the request.
`persona` names a persona of the registry, or defines one: `{"name":"harbour historian","text":"You know ships."}`.
Code fills in everything else. The form is short because the user waits for every token of it.

A plan that depends on what a step finds ends with that step, which has `"replan":true`. When the step is done, the
frontdoor writes the remaining parts in the same form, perhaps none. Their numbers continue those of the earlier parts.
"""

import json
import re
from collections.abc import Collection, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.engine.contract import COMPACT
from orchestrator.errors import OrchestratorError
from orchestrator.run.frontdoor.listed import FIRST_PARTS, Listed, listed_part
from orchestrator.run.frontdoor.personas import persona_schema
from orchestrator.task.taskir.json_text import compact_json, read_json

MAX_PARTS = 64
MAX_READS = 64
MAX_ACTION = 1000
MAX_NAME = 200
MAX_PART_TEXT = 40_000

_HEAD = re.compile(r'\s*(?:```[a-z]*\s*)?\{\s*"plan"\s*:\s*\[')
_HEAD_LENGTH = 200
_BETWEEN_PARTS = ", \t\r\n"
# only finds where a part ends; `read_json`, which is stricter, reads the part
_DECODER = json.JSONDecoder(parse_int=str)

# an error further from the end of the text cannot come from an incomplete token
_LONGEST_TOKEN = len("-Infinity") + 1

_Text = Annotated[str, Field(strict=True, min_length=1, max_length=MAX_ACTION)]
_Name = Annotated[str, Field(strict=True, min_length=1, max_length=MAX_NAME)]
_Names = Annotated[tuple[_Name, ...], Field(max_length=MAX_READS)]


class PlanFlaw(OrchestratorError):
    """A plan that cannot be used. The text goes to the model, to help it write a better one."""


class PersonaPart(BaseModel):
    """A persona that a plan defines. `text` is added to the system prompt of the role."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: _Name
    text: _Text


class Part(BaseModel):
    """A part of a plan as a model writes it, with its fields in the order of writing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: _Name
    action: _Text
    persona: PersonaPart | _Name | None = None  # the name of a persona of the registry, or a new one
    each: _Names = ()
    inputs: _Names = ()
    foreach: _Name | None = None
    output: _Name | None = None
    outputs: _Names = ()
    after: _Names = ()
    replan: Annotated[bool, Field(strict=True)] = False

    def as_json(self) -> dict[str, Any]:
        """Return the part without its empty fields."""
        fields = self.model_dump(mode="json")
        return {key: value for key, value in fields.items() if value}

    @property
    def written(self) -> str:
        return compact_json(self.as_json())


def plan_schema(
    roles: Collection[str],
    accepted: Sequence[Part] = (),
    *,
    least: int = 1,
    replan: bool = False,
    listed: Listed | None = None,
    done: int = 0,
    personas: Collection[str] | None = None,
) -> dict[str, Any]:
    """Return the JSON Schema of a plan for these roles that starts with the `accepted` parts.

    It has at least `least` parts. Parts may have the key `replan` only if `replan` is true. With `listed`, a part can
    only name what that lists and earlier parts, `done` of which are not in this plan. With `personas`, a part may have
    one of these, or define one.
    """
    fixed_parts: list[dict[str, Any]] = [{"const": earlier.as_json()} for earlier in accepted]
    part = _free_part(roles, replan)
    if listed is not None:
        first = done + len(fixed_parts) + 1
        persona = None if personas is None else persona_schema(personas)
        numbers = range(first, first + FIRST_PARTS)
        fixed_parts += [listed_part(roles, listed, number, replan=replan, persona=persona) for number in numbers]
        part = listed_part(roles, listed, first + FIRST_PARTS, replan=replan, persona=persona)
    parts: dict[str, Any] = {"type": "array", "items": part, "minItems": least, "maxItems": MAX_PARTS}
    if fixed_parts:
        parts["prefixItems"] = fixed_parts
    return {
        COMPACT: True,
        "type": "object",
        "properties": {"plan": parts},
        "required": ["plan"],
        "additionalProperties": False,
    }


def _free_part(roles: Collection[str], replan: bool) -> dict[str, Any]:
    # names can be anything here; the builder looks them up
    name = {"type": "string", "minLength": 1, "maxLength": MAX_NAME}
    names = {"type": "array", "items": name, "maxItems": MAX_READS}
    return {
        "type": "object",
        "properties": {
            "role": {"enum": [*roles]},
            "action": {"type": "string", "minLength": 1, "maxLength": MAX_ACTION},
            "each": names,
            "inputs": names,
            "foreach": name,
            "output": name,
            "outputs": names,
            "after": names,
            **({"replan": {"const": True}} if replan else {}),
        },
        "required": ["role", "action"],
        "additionalProperties": False,
    }


class PlanStream:
    """Reads a plan that comes in pieces, and returns each part as soon as its object closes.

    For the rest of a plan of which `done` parts are finished, flaws count these too, and the rest may be empty.
    """

    def __init__(self, done: int = 0) -> None:
        self.length = 0  # characters read
        self.closed = False  # whether the list of parts has ended
        self._begun = False
        self._text = ""
        self._done = self._count = done

    @property
    def has_next(self) -> bool:
        """Whether another part has started after those that were returned."""
        return not self.closed and self._text.lstrip(_BETWEEN_PARTS).startswith("{")

    def feed(self, piece: str) -> list[Part]:
        """Return the parts that `piece` completes. Raises `PlanFlaw` as soon as the text cannot be a plan."""
        self.length += len(piece)
        self._text += piece
        if not self._begun and not self._begin():
            return []
        parts: list[Part] = []
        while (part := self._next_part()) is not None:
            parts.append(part)
        if len(self._text) > MAX_PART_TEXT and not self.closed:
            raise PlanFlaw(f"P{self._count + 1} does not end")
        return parts

    def finish(self) -> None:
        """End the text. Raises `PlanFlaw` if the plan breaks off or is empty."""
        if not self.closed:
            raise PlanFlaw(f"the plan breaks off in P{self._count + 1}" if self._begun else "there is no plan")
        if not self._count:  # a rest may be empty, since parts of its plan are done
            raise PlanFlaw("the plan is empty")

    def _begin(self) -> bool:
        head = _HEAD.match(self._text)
        if head is not None:
            self._text, self._begun = self._text[head.end() :], True
        elif len(self._text) > _HEAD_LENGTH or "[" in self._text:
            raise PlanFlaw('the plan does not begin with {"plan":[')
        return self._begun

    def _next_part(self) -> Part | None:
        if self.closed:
            return None
        self._text = self._text.lstrip(_BETWEEN_PARTS)
        self.closed = self._text.startswith("]")
        if self.closed or not self._text:
            return None
        if not self._text.startswith("{"):
            raise PlanFlaw(f"there is {self._text[0]!r} where P{self._count + 1} should begin")
        end = self._object_end()
        if end is None:
            return None
        text, self._text = self._text[:end], self._text[end:]
        return self._part(text)

    def _object_end(self) -> int | None:
        if "}" not in self._text:
            return None
        try:
            return _DECODER.raw_decode(self._text)[1]
        except json.JSONDecodeError as error:
            if error.msg.startswith("Unterminated string") or len(self._text) - error.pos < _LONGEST_TOKEN:
                return None  # more text may complete it
            raise PlanFlaw(f"P{self._count + 1}: the part is not JSON: {error}") from error
        except RecursionError as error:
            raise PlanFlaw(f"P{self._count + 1}: the part is nested too deep") from error

    def _part(self, text: str) -> Part:
        self._count += 1
        if self._count - self._done > MAX_PARTS:
            raise PlanFlaw(f"the plan has more than {MAX_PARTS} parts")
        document, problems = read_json(text)
        if problems:
            raise PlanFlaw(f"P{self._count}: {problems[0]}")
        try:
            return Part.model_validate(document)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            where = "/".join(map(str, first["loc"]))
            raise PlanFlaw(f"P{self._count}: {where}: {first['msg']}") from error


def plan_text(parts: Sequence[Part]) -> str:
    return compact_json({"plan": [part.as_json() for part in parts]})
