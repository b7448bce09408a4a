"""Choose by the registry's rules.

The role is the step's actor, or the one that a failure was escalated to. The persona is the one that the step or the
user names, else the hint of the task's agents, else the role's default. The model is the one that the request forces,
else the agents' hint, else the role's. A plan is run as it is.
"""

from dataclasses import replace
from typing import Final, Literal

from orchestrator.errors import Problem
from orchestrator.registry.models import Registry
from orchestrator.run.routing.contract import NO_MODEL, Decision, DecisionContext
from orchestrator.task.events import RouteCandidate
from orchestrator.task.taskir.models import Agent

# Name and version of these rules, for the journal.
RULES: Final = "rules-1"


class RuleRouter:
    async def choose(self, context: DecisionContext) -> Decision:
        return by_rules(context)


def by_rules(context: DecisionContext) -> Decision:
    """Return the rules' choice, and whether it would be the same if nothing was forced."""
    # Role, personas and hints were checked when the run was accepted, by the registry of that time.
    ruling = _ruling(context)
    if (free := unforced_context(context)) == context:
        return ruling
    usual = _ruling(free)
    same = (usual.role, usual.persona, usual.model) == (ruling.role, ruling.persona, ruling.model)
    return replace(ruling, unforced=float(same))


def unforced_context(context: DecisionContext) -> DecisionContext:
    """Return the context without what the user has forced: the model, and persona and hints of a task or chat."""
    if context.task is None and context.step is not None:
        # What the plan of a request names is no user's choice, and stays.
        return replace(context, model=None)
    agents = tuple(agent.model_copy(update={"model_hint": None, "persona_hint": None}) for agent in context.agents)
    return replace(context, model=None, persona=None, agents=agents)


def _ruling(context: DecisionContext) -> Decision:
    role, registry = context.role, context.registry
    if role not in registry.roles:
        lost = _missing(context, "roles", role)
        return Decision(
            role=role, persona=context.persona, model=NO_MODEL, reason=lost.what, router=RULES, problem=lost
        )
    agent = next((agent for agent in context.agents if agent.role == role), None)
    persona, why_persona = _persona(context.persona, agent, registry.roles[role].persona, registry)
    model, why_model = _model(context.model, agent, role, registry)
    missing = None if persona is None or persona in registry.personas else _missing(context, "personas", persona)
    return Decision(
        role=role,
        persona=persona,
        model=model,
        reason=f"role {role}: {_why_role(context)}; {why_model}; {why_persona}",
        candidates=(RouteCandidate(role, persona, model, 1.0),),
        router=RULES,
        mode=context.modes[0] if context.modes else None,
        problem=missing,
    )


def _why_role(context: DecisionContext) -> str:
    if context.step is None:
        return "the one that plans" if context.modes else "the one that plans fall back on"
    actor, role, failures = context.step.actor, context.role, context.failures
    if role == actor:
        return "the step's actor"
    if failures and failures[-1].role == role and not any(failed.asked == role for failed in failures):
        return f"chosen before in the place of {actor}"
    return f"escalated from {actor}"


def _missing(context: DecisionContext, section: Literal["roles", "personas"], name: str) -> Problem:
    registry = context.registry
    there = ", ".join(registry.roles if section == "roles" else registry.personas) or "none"
    needed = f"which step {context.step.id} needs" if context.step is not None else "which was asked for"
    message = f"there is no {name!r} any more, {needed}"
    accepted = f"{name} put back and the run tried again; now there are: {there}"
    return Problem(f"{registry.path}: {section}", message, accepted)


def _persona(named: str | None, agent: Agent | None, default: str | None, registry: Registry) -> tuple[str | None, str]:
    if named is not None:
        return named, f"persona {named}: named by the step"
    if agent is not None and agent.persona_hint in registry.personas:
        return agent.persona_hint, f"persona {agent.persona_hint}: hint of the task's agents"
    if default is not None:
        return default, f"persona {default}: the role's default"
    return None, "no persona"


def _model(forced: str | None, agent: Agent | None, role: str, registry: Registry) -> tuple[str, str]:
    if forced is not None and (named := registry.model_named(forced)) is not None:
        return named, f"model {named}: forced by the request"
    hint = agent.model_hint if agent is not None else None
    if hint is not None and (hinted := registry.model_named(hint)) is not None:
        return hinted, f"model {hinted}: hint of the task's agents"
    model = registry.roles[role].model
    return model, f"model {model}: the role's"
