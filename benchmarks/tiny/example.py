"""Define what a task family gives: an example with its prompt, reference answer and schema."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Protocol

import yaml

from benchmarks.tiny.words import Split
from orchestrator.engine.contract import Message
from orchestrator.steps.prompt import Input, after_failure, step_messages

SYSTEM_PROMPTS = {
    "frontdoor": "Plan the request as steps.",
    "worker": "Do the task.",
    "coder": "Write the code.",
    "architect": "Solve the hard task.",
    "judge": "Judge the answer.",
}
STEP_ROLES = ("worker", "coder", "architect")
RETRIED_SHARE = 0.05
FLAWS = (
    "it is no valid JSON: Expecting value: line 1 column 1 (char 0)",
    "it is no valid JSON: Expecting ',' delimiter: line 1 column 24 (char 23)",
    "it was cut off after 512 tokens",
    "the answer is empty",
    "'name' is a required property",
    "12 is not of type 'string'",
    "SyntaxError: invalid syntax (line 1)",
    "E999 unexpected indent",
    "1 failed, 2 passed",
    "The price should be 214.",
    "The city is missing.",
)
PERSONAS_FILE = Path(__file__).parents[2] / "registry" / "personas.yaml"


@dataclass(frozen=True, slots=True)
class Example:
    """One prompt with its only right answer. `wording` names the templates that the prompt was made from.

    The prompt of a step is made from `inputs` and `action`; others have none.
    """

    family: str
    role: str
    persona: str
    messages: tuple[Message, ...]
    answer: str
    wording: str
    schema: dict[str, Any] | None = None
    inputs: tuple[Input, ...] = ()
    action: str = ""


class Family(Protocol):
    """Generates examples of one kind of task and checks answers to them. Never executes an answer."""

    name: str

    def generate(self, rng: Random, split: Split) -> Example:
        """Return a new example whose names (and wording) belong to `split`; the same `rng` state gives the same."""

    def check(self, example: Example, answer: str) -> bool:
        """Return whether `answer` says the same as the reference answer."""


@cache
def persona_texts() -> dict[str, str]:
    """Return the overlay text of each persona, `""` for none."""
    loaded = yaml.safe_load(PERSONAS_FILE.read_text(encoding="utf-8"))["personas"]
    return {"": "", **{name: str(entry["text"]) for name, entry in loaded.items()}}


def pick_persona(rng: Random, fitting: Sequence[str]) -> str:
    """Return none, one of the `fitting` personas, or rarely one that the answer has to ignore."""
    roll = rng.random()
    if roll < 0.5 or (not fitting and roll < 0.9):
        return ""
    if fitting and roll < 0.94:
        return rng.choice(fitting)
    return rng.choice(sorted(set(persona_texts()) - set(fitting)))


def step_example(
    family: str,
    rng: Random,
    persona: str,
    inputs: Sequence[Input],
    action: str,
    answer: str,
    wording: str,
    *,
    schema: dict[str, Any] | None = None,
    role: str = "",
) -> Example:
    """Return an example laid out as the prompt of a step. Without a `role` it is drawn from those that do steps.

    Steps escalate from role to role, so every role has to know every family.
    """
    role = role or rng.choice(STEP_ROLES)
    asked = action
    if rng.random() < RETRIED_SHARE:
        asked = after_failure(action, rng.choices(FLAWS, k=rng.choice((1, 1, 2))))
    messages = step_messages(SYSTEM_PROMPTS[role], persona_texts()[persona], inputs, asked)
    return Example(family, role, persona, messages, answer, wording, schema, tuple(inputs), action)
