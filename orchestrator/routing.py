"""Choose who does a step: (role, persona, model), with the reason. Rules for now; learned advice joins here later.

The role is the step's actor, or the one that a failure was escalated to. The persona is the step's own, else the hint
of the task's agents, else the role's default. The model is the agents' hint where it names one, else the role's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.taskir import Agent, Step
from registry.models import Registry


@dataclass(frozen=True, slots=True)
class Route:
    """A choice, why it was made, and how probable it was (1 for a rule)."""

    role: str
    persona: str | None
    model: str
    reason: str
    propensity: float = 1.0


def route(step: Step, role: str, agents: Sequence[Agent], registry: Registry) -> Route:
    """Choose for an attempt of `step` by `role`. Role, personas and hints were checked when the run was accepted."""
    agent = next((agent for agent in agents if agent.role == role), None)
    persona, why_persona = _persona(step, agent, registry.roles[role].persona)
    model, why_model = _model(agent, role, registry)
    why_role = "the step's actor" if role == step.actor else f"escalated from {step.actor}"
    return Route(role, persona, model, f"role {role}: {why_role}; {why_model}; {why_persona}")


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
