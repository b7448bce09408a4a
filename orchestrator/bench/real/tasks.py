"""Tasks with answers that can be checked: extraction, counting, classification and code."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass as pydantic_dataclass

from orchestrator.bench.real.requests import ROLES
from orchestrator.bench.real.structure import CODER
from orchestrator.registry.strict_yaml import parse_file
from orchestrator.run.steps.role import StepInput
from orchestrator.task.taskir.models import Step

Kind = Literal["extract", "count", "classify", "code"]
MAX_TOKENS: Final[Mapping[Kind, int]] = {"extract": 256, "count": 64, "classify": 32, "code": 512}
# The gates of code. Style is not what the tasks ask for.
CODE_GATES: Final = ("build", "unit")

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:[.,]\d+)*")


@pydantic_dataclass(config=ConfigDict(extra="forbid"), frozen=True, kw_only=True)
class RealTask:
    """One task, which is a plan of one step. The file tasks.yaml explains the fields."""

    name: str
    kind: Kind
    ask: str
    text: str = ""
    schema: dict[str, Any] | None = None
    expect: Any = None
    # Other answers that are right, by the key or the position in `expect`.
    also: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    labels: tuple[str, ...] = ()
    output: str = ""
    tests: str = ""

    @property
    def step(self) -> Step:
        """The step of the task."""
        is_code = self.kind == "code"
        ending = "json" if self.schema is not None else "txt"
        fields: dict[str, Any] = {
            "id": "S1",
            "actor": CODER if is_code else ROLES[0],
            "action": self.ask,
            "outputs": (self.output or f"answer.{ending}",),
            "max_tokens": MAX_TOKENS[self.kind],
            "gates": CODE_GATES if is_code else (),
        }
        if self.text:
            fields["inputs"] = ("text.txt",)
        if self.schema is not None:
            fields["output_schema"] = self.schema
        return Step(**fields)

    @property
    def reads(self) -> tuple[StepInput, ...]:
        """What the step reads."""
        return (StepInput("text.txt", self.text),) if self.text else ()

    @property
    def hidden(self) -> tuple[StepInput, ...]:
        """The tests of the step, which its model does not see."""
        return (StepInput(f"test_{self.output}", self.tests),) if self.tests else ()

    def is_right(self, answer: str) -> bool:
        """Return whether an answer is right. For code it is True: callers pass only code that passed its tests."""
        match self.kind:
            case "extract" if self.schema is None:
                return has_phrases(answer, self.expect)
            case "extract":
                return same_values(json.loads(answer), self.expect, self.also)
            case "count":
                return bool(numbers_in(answer) == {float(self.expect)})
            case "classify":
                return label_in(answer, self.labels) == str(self.expect)
            case "code":
                return True


def has_phrases(answer: str, phrases: Sequence[str]) -> bool:
    """Return whether an answer holds every one of the phrases, in upper or lower case."""
    return all(phrase.casefold() in answer.casefold() for phrase in phrases)


def same_values(found: Any, expected: Any, also: Mapping[str, Sequence[str]]) -> bool:
    """Return whether JSON is what was expected, where case, white space and an article before a text do not matter."""
    if isinstance(expected, dict):
        keys: list[Any] = [*expected]
        comparable = isinstance(found, dict) and found.keys() == expected.keys()
    else:
        keys = [*range(len(expected))]
        comparable = isinstance(found, list) and len(found) == len(expected)
    return comparable and all(
        any(_plain(found[key]) == _plain(right) for right in (expected[key], *also.get(str(key), ()))) for key in keys
    )


def numbers_in(answer: str) -> set[float]:
    """Return the different numbers that a text holds in digits. A comma in a number separates thousands."""
    return {float(number.replace(",", "")) for number in _NUMBER.findall(answer) if number.count(".") < 2}


def label_in(answer: str, labels: Sequence[str]) -> str | None:
    """Return the label that is the whole answer, except for punctuation and case, or None."""
    words = re.sub(r"[\W_]+", " ", answer.casefold()).strip()
    return next((label for label in labels if label.casefold() == words), None)


def _plain(value: object) -> object:
    if not isinstance(value, str):
        return value
    words = " ".join(value.casefold().split()).rstrip(".")
    return re.sub(r"^(?:the|an?) ", "", words)


@cache
def real_tasks() -> tuple[RealTask, ...]:
    """Return the tasks of tasks.yaml."""
    data = parse_file(Path(__file__).with_name("tasks.yaml")).data
    return TypeAdapter(tuple[RealTask, ...]).validate_python(data)
