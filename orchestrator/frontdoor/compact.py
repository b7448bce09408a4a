"""Read the compact form in which a model writes a plan, step by step while it is still being written.

    {"steps":[{"role":"worker","action":"Summarize a.txt.","inputs":["a.txt"]},
              {"role":"worker","action":"Compare the summaries.","inputs":["S1"],"output":"report.md"}]}

`S1` is the output of the first step; other names are files, or `request` for the text of the request itself. Code
fills in the rest. The form is short because every token of it is waited for.

A plan that depends on what a step finds ends with that step, which then has `"replan":true` as its last key: when it is
done the frontdoor is asked to go on, and writes only the steps that are left, in the same form; none, if the plan is
finished. They are numbered on.
"""

import re
from collections.abc import Collection, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.frontdoor.errors import PlanFlaw
from orchestrator.steps.fan import compact_json
from orchestrator.taskir.json_text import read_json

MAX_STEPS = 64
MAX_READS = 64
MAX_ACTION = 1000
MAX_NAME = 200
MAX_STEP_TEXT = 40_000

_HEAD = re.compile(r'\s*(?:```[a-z]*\s*)?\{\s*"steps"\s*:\s*\[')
_HEAD_LENGTH = 200

_Text = Annotated[str, Field(strict=True, min_length=1, max_length=MAX_ACTION)]
_Name = Annotated[str, Field(strict=True, min_length=1, max_length=MAX_NAME)]
_Names = Annotated[tuple[_Name, ...], Field(max_length=MAX_READS)]


class CompactStep(BaseModel):
    """A step as a model writes it. The order of the fields is that of the form."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: _Name
    action: _Text
    inputs: _Names = ()
    foreach: _Name | None = None
    output: _Name | None = None
    after: _Names = ()
    replan: Annotated[bool, Field(strict=True)] = False

    def as_json(self) -> dict[str, Any]:
        """Return the step as it is written, without what it leaves out."""
        optional = {"foreach": self.foreach, "output": self.output, "after": list(self.after), "replan": self.replan}
        written = {"role": self.role, "action": self.action, "inputs": list(self.inputs)}
        return written | {key: value for key, value in optional.items() if value}

    @property
    def written(self) -> str:
        """The step as a model writes it."""
        return compact_json(self.as_json())


def compact_schema(
    roles: Collection[str], accepted: Sequence[CompactStep] = (), *, least: int = 1, replan: bool = False
) -> dict[str, Any]:
    """Return the JSON Schema of a plan for these roles that begins with the `accepted` steps and has `least` in all.

    Only with `replan` may a step ask for the plan to go on after it.
    """
    name = {"type": "string", "minLength": 1, "maxLength": MAX_NAME}
    names = {"type": "array", "items": name, "maxItems": MAX_READS}
    step = {
        "type": "object",
        "properties": {
            "role": {"enum": [*roles]},
            "action": {"type": "string", "minLength": 1, "maxLength": MAX_ACTION},
            "inputs": names,
            "foreach": name,
            "output": name,
            "after": names,
            **({"replan": {"const": True}} if replan else {}),
        },
        "required": ["role", "action", "inputs"],
        "additionalProperties": False,
    }
    steps: dict[str, Any] = {"type": "array", "items": step, "minItems": least, "maxItems": MAX_STEPS}
    if accepted:
        steps["prefixItems"] = [{"const": one.as_json()} for one in accepted]
    return {"type": "object", "properties": {"steps": steps}, "required": ["steps"], "additionalProperties": False}


class CompactStream:
    """Takes a plan in pieces and gives each step the moment its object closes. Raises `PlanFlaw` as soon as it can.

    If it is the rest of a plan of which so many steps are `done`, flaws count them in, and it may have no steps.
    """

    def __init__(self, done: int = 0) -> None:
        self.length = 0
        """Characters taken in so far."""
        self.closed = False
        """Whether the list of steps has ended."""
        self._begun = False
        self._text = ""
        self._at = 0
        self._depth = 0
        self._quoted = False
        self._done = self._count = done

    def feed(self, piece: str) -> list[CompactStep]:
        """Return the steps that `piece` completes, in order."""
        self.length += len(piece)
        self._text += piece
        if not self._begun and not self._begin():
            return []
        steps: list[CompactStep] = []
        while not self.closed and (end := self._scan()) is not None:
            steps.append(self._step(self._text[:end]))
            self._text, self._at = self._text[end:], 0
        if len(self._text) > MAX_STEP_TEXT and not self.closed:
            raise PlanFlaw(f"step {self._count + 1} does not end")
        return steps

    def finish(self) -> None:
        """Say that nothing more will come. Raises `PlanFlaw` for a plan that breaks off."""
        if not self.closed:
            raise PlanFlaw(f"the plan breaks off in step {self._count + 1}" if self._begun else "there is no plan")
        if not self._count:  # nor is anything done: there is nothing to do at all
            raise PlanFlaw("the plan has no steps")

    def _begin(self) -> bool:
        head = _HEAD.match(self._text)
        if head is not None:
            self._text, self._begun = self._text[head.end() :], True
        elif len(self._text) > _HEAD_LENGTH or "[" in self._text:
            raise PlanFlaw('the plan does not begin with {"steps":[')
        return self._begun

    def _scan(self) -> int | None:
        """Go on to the end of the next step and return where it is, or None if it has not come yet."""
        while self._at < len(self._text):
            mark = self._text[self._at]
            if self._quoted and mark == "\\":
                if self._at + 1 == len(self._text):
                    return None  # the escaped character is still to come
                self._at += 1
            elif mark == '"':
                self._quoted = not self._quoted
            elif not self._quoted and self._turn(mark):
                return self._at + 1
            if self.closed:
                return None
            self._at += 1
        return None

    def _turn(self, mark: str) -> bool:
        """Follow a character outside of strings. Return whether it ends a step."""
        if mark in "{[":
            self._depth += 1
        elif mark in "}]" and self._depth:
            self._depth -= 1
            return self._depth == 0
        elif mark == "]":
            self.closed = True
        elif not self._depth and not mark.isspace() and mark != ",":
            raise PlanFlaw(f"there is {mark!r} where step {self._count + 1} should begin")
        return False

    def _step(self, text: str) -> CompactStep:
        self._count += 1
        if self._count - self._done > MAX_STEPS:
            raise PlanFlaw(f"the plan has more than {MAX_STEPS} steps")
        document, problems = read_json(text.strip().lstrip(",").lstrip())
        if problems:
            raise PlanFlaw(f"step {self._count}: {problems[0]}")
        try:
            return CompactStep.model_validate(document)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            where = "/".join(map(str, first["loc"]))
            raise PlanFlaw(f"step {self._count}: {where}: {first['msg']}") from error
