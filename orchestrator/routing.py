"""Choose who does a step: (role, persona, model), with the reason. Rules for now; learned advice joins here later.

The role is the step's actor, or the one that a failure was escalated to. The persona is the step's own, else the hint
of the task's agents, else the role's default. The model is the agents' hint where it names one, else the role's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from orchestrator.errors import Problem
from orchestrator.taskir import Agent, Step
from registry.models import Registry

NO_MODEL: Final = "none"


@dataclass(frozen=True, slots=True)
class Route:
    """A choice, why it was made, and how probable it was (1 for a rule).

    With a `problem` it leads nowhere: the registry has lost what the run names since it was accepted.
    """

    role: str
    persona: str | None
    model: str
    reason: str
    propensity: float = 1.0
    problem: Problem | None = None


def route(step: Step, role: str, agents: Sequence[Agent], registry: Registry) -> Route:
    """Choose for an attempt of `step` by `role`.

    Role, personas and hints were checked when the run was accepted, by the registry that was in force then.
    """
    if role not in registry.roles:
        lost = _lost(step, "roles", role, registry)
        return Route(role, step.persona, NO_MODEL, lost.what, problem=lost)
    agent = next((agent for agent in agents if agent.role == role), None)
    persona, why_persona = _persona(step, agent, registry.roles[role].persona)
    model, why_model = _model(agent, role, registry)
    why_role = "the step's actor" if role == step.actor else f"escalated from {step.actor}"
    gone = None if persona is None or persona in registry.personas else _lost(step, "personas", persona, registry)
    return Route(role, persona, model, f"role {role}: {why_role}; {why_model}; {why_persona}", problem=gone)


def _lost(step: Step, section: Literal["roles", "personas"], name: str, registry: Registry) -> Problem:
    there = ", ".join(registry.roles if section == "roles" else registry.personas) or "none"
    what = f"there is no {name!r} any more, which step {step.id} needs"
    accepted = f"{name} put back and the run tried again; now there are: {there}"
    return Problem(f"{registry.path}: {section}", what, accepted)


def _persona(step: Step, agent: Agent | None, default: str | None) -> tuple[str | None, str]:
    if step.persona is not None:
        return step.persona, f"persona {step.persona}: named by the step"
    if agent is not None and agent.persona_hint is not None:
        return agent.persona_hint, f"persona {agent.persona_hint}: hint of the task's agents"
    if default is not None:
        return default, f"persona {default}: the role's default"
    return None, "no persona"


def _model(agent: Agent | None, role: str, registry: Registry) -> tuple[str, str]:
    hint = agent.model_hint if agent is not None else None
    if hint is not None and hint in registry.models:
        return hint, f"model {hint}: hint of the task's agents"
    model = registry.roles[role].model
    return model, f"model {model}: the role's"
