"""Define what a task family generates: examples with prompt, reference answer and schema."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Protocol

import yaml

from orchestrator.bench.families.words import Split
from orchestrator.engine.contract import Message
from orchestrator.registry.prompts import prompt_set
from orchestrator.run.steps.role import StepInput, after_failure, step_messages

# The system prompts that the models are trained on, by role. They ship with the models.
SYSTEM_PROMPTS = prompt_set("tiny").roles
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
    """One prompt with its only right answer."""

    family: str
    role: str
    persona: str
    messages: tuple[Message, ...]  # the prompt
    answer: str
    wording: str  # the templates that the prompt was made from
    schema: dict[str, Any] | None = None  # the JSON Schema of the answer, if it is JSON
    inputs: tuple[StepInput, ...] = ()  # the inputs of the step, if the prompt is one of a step
    action: str = ""  # the action of the step, if the prompt is one of a step


class Family(Protocol):
    """Generates examples of one kind of task, and checks answers without executing them."""

    name: str

    def generate(self, rng: Random, split: Split) -> Example:
        """Return a new example whose names and wording belong to `split`. It depends only on the state of `rng`."""

    def check(self, example: Example, answer: str) -> bool:
        """Return whether `answer` says the same as the reference answer."""


@cache
def persona_texts() -> dict[str, str]:
    """Return the text of each persona by name; the name `""` stands for no persona."""
    loaded = yaml.safe_load(PERSONAS_FILE.read_text(encoding="utf-8"))["personas"]
    return {"": "", **{name: str(entry["text"]) for name, entry in loaded.items()}}


def pick_persona(rng: Random, fitting: Sequence[str]) -> str:
    """Return no persona (`""`), one of the `fitting` ones, or rarely one that must not change the answer."""
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
    inputs: Sequence[StepInput],
    action: str,
    answer: str,
    wording: str,
    *,
    schema: dict[str, Any] | None = None,
    role: str = "",
) -> Example:
    """Return an example whose prompt is that of a step. If `role` is empty, a role that does steps is drawn.

    Steps escalate from role to role, so every role has to know every family.
    """
    role = role or rng.choice(STEP_ROLES)
    action_text = action
    if rng.random() < RETRIED_SHARE:
        action_text = after_failure(action, rng.choices(FLAWS, k=rng.choice((1, 1, 2))))
    messages = step_messages(SYSTEM_PROMPTS[role], persona_texts()[persona], inputs, action_text)
    return Example(family, role, persona, messages, answer, wording, schema, tuple(inputs), action)
