"""Lay out the prompt of a step: role's system prompt, persona, inputs in document order, action.

The order is a contract, for two reasons. Siblings that share a role, a persona and their first inputs share the
longest possible token prefix, which the engine then computes once. And the embedded models are trained on exactly
this layout, by calling these functions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.engine.contract import Message, SystemPrompt
from registry.models import Registry


@dataclass(frozen=True, slots=True)
class StepInput:
    """A named text a step reads: an artifact, an input of the task or a file, already loaded."""

    name: str
    text: str


def step_messages(system: str, persona: str, inputs: Sequence[StepInput], action: str) -> tuple[Message, Message]:
    """Return the system and the user message of a step. `persona` is its overlay text, or empty for none."""
    instructions = f"{system}\n{persona}" if persona else system
    blocks = [f"[{item.name}]\n{item.text.strip()}\n\n" for item in inputs]
    return Message("system", instructions), Message("user", "".join(blocks) + f"{TASK} {action}")


TASK = "Task:"
"""What a prompt says before the action."""
FAILED_BEFORE = "The previous answer failed:"
"""What a retry's prompt says before the reason why an earlier answer was refused."""


def plan_messages(system: str, files: Iterable[str], request: str) -> tuple[Message, Message]:
    """Return the messages that ask the frontdoor for a plan. `files` are the names the request may refer to."""
    listed = ", ".join(files)
    known = f"Files: {listed}\n" if listed else ""
    return Message("system", system), Message("user", f"{known}Request: {request}")


def after_failure(action: str, evidence: Iterable[str]) -> str:
    """Return `action` with what earlier answers failed for, so that no retry repeats the same greedy prompt."""
    return "\n".join([action, *(f"{FAILED_BEFORE} {text}" for text in evidence)])


def after_flaw(request: str, flaw: str) -> str:
    """Return `request` with what was wrong with the plan that was made of it."""
    return f"{request}\nThe previous plan failed: {flaw}"


def after_parts(request: str, plan: str, name: str, output: str) -> str:
    """Return `request` with the `plan` so far, as JSON, and the `output` of part `name` that the rest depends on."""
    return f"{request}\nDone: {plan}\n[{name}]\n{output.strip()}\nPlan the rest."


def system_messages(registry: Registry, model: str) -> tuple[SystemPrompt, ...]:
    """Return every system message that a step's prompt for `model` may begin with, and the adapters that go with it.

    There is one for each role that the model plays, without a persona and with each persona of the registry. That of
    the frontdoor is computed ahead: every request in words begins with it.
    """
    roles = [role for role in registry.roles.values() if role.model == model and role.system]
    personas = ["", *(persona.text for persona in registry.personas.values())]
    prompts = (
        SystemPrompt(
            step_messages(role.system, text, (), "")[0].content, role.lora, ahead=role.tier == "A" and not text
        )
        for role in roles
        for text in personas
    )
    return tuple(dict.fromkeys(prompts))
