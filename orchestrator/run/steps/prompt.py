"""Lay out the prompt of a step: role's system prompt, persona, inputs in document order, action.

The order is a contract: siblings share the longest possible token prefix, which is computed once, and the embedded
models are trained on it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.engine.contract import Message, SystemPrompt
from orchestrator.registry.models import Registry


@dataclass(frozen=True, slots=True)
class StepInput:
    """A text that a step reads: an artifact, an input of the task or a file."""

    name: str
    text: str


def step_messages(system: str, persona: str, inputs: Sequence[StepInput], action: str) -> tuple[Message, Message]:
    """Return the system and the user message of a step. `persona` is its text, or empty for none."""
    instructions = f"{system}\n{persona}" if persona else system
    blocks = [f"[{item.name}]\n{item.text.strip()}\n\n" for item in inputs]
    return Message("system", instructions), Message("user", "".join(blocks) + f"{TASK} {action}")


TASK = "Task:"
# Before the reason why an earlier answer was refused.
FAILED_BEFORE = "The previous answer failed:"


def plan_messages(system: str, files: Iterable[str], request: str, cores: int = 0) -> tuple[Message, Message]:
    """Return the messages that ask the frontdoor for a plan. The request may refer to `files`.

    With `cores`, they say how many cores the machine has.
    """
    listed = ", ".join(files)
    files_line = f"Files: {listed}\n" if listed else ""
    cores_line = f"Cores: {cores}\n" if cores else ""
    return Message("system", system), Message("user", f"{files_line}{cores_line}Request: {request}")


def after_failure(action: str, evidence: Iterable[str]) -> str:
    """Return `action` with the reasons of earlier failures, so that no retry repeats the same greedy prompt."""
    return "\n".join([action, *(f"{FAILED_BEFORE} {text}" for text in evidence)])


def after_flaw(request: str, flaw: str) -> str:
    return f"{request}\nThe previous plan failed: {flaw}"


def after_parts(request: str, plan: str, name: str, output: str) -> str:
    """Return `request` with the `plan` so far (JSON) and the `output` of part `name` that the rest needs."""
    return f"{request}\nDone: {plan}\n[{name}]\n{output.strip()}\nPlan the rest."


def system_messages(registry: Registry, model: str) -> tuple[SystemPrompt, ...]:
    """Return all system messages that steps' prompts for `model` may start with, and their adapters."""
    # One for each role of the model, without a persona and with each persona.
    roles = [role for role in registry.roles.values() if role.model == model and role.system]
    personas = ["", *(persona.text for persona in registry.personas.values())]
    # The frontdoor's (tier A) is computed ahead: every request in words starts with it.
    prompts = (
        SystemPrompt(
            step_messages(role.system, text, (), "")[0].content, role.lora, ahead=role.tier == "A" and not text
        )
        for role in roles
        for text in personas
    )
    return tuple(dict.fromkeys(prompts))
