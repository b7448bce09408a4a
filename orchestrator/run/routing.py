"""Choose the role, persona and model of each attempt and chat, with the reason: the Router port, and the rules.

The role is the step's actor, or the one that a failure was escalated to. The persona is the one that the step or the
user names, else the hint of the task's agents, else the role's default. The model is the one that the request forces,
else the agents' hint, else the role's. A plan is run as it is.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol

import structlog

from orchestrator.errors import Problem
from orchestrator.registry.models import Registry
from orchestrator.task.events import InputSize, RouteAdvice, RouteCandidate
from orchestrator.task.failures import FailedAttempt
from orchestrator.task.modes import Mode, Priority
from orchestrator.task.taskir.models import Agent, Step, TaskIR

# Stands for the model in a decision that cannot be carried out.
NO_MODEL: Final = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionContext:
    """All that a choice may depend on. A chat or a plan is no step of a run: it has neither `task` nor `step`."""

    registry: Registry  # in a run it also has the entries that were removed since the run was accepted
    role: str  # the step's actor, or whom a failure was escalated to
    roles: tuple[str, ...]  # the roles that may be chosen instead: those that do steps, with a usable model
    objective: str = ""  # the task's objective, a run's request, or what the user of a chat said last
    task: TaskIR | None = None
    step: Step | None = None
    persona: str | None = None  # named by the step or the user; a router does not replace it
    inputs: tuple[InputSize, ...] = ()  # what the step reads, by name, with its size if known
    failures: tuple[FailedAttempt, ...] = ()  # of the step, oldest first, each with the role that had it
    slack: float = 0.0  # predicted seconds that the step may be late without delaying its run
    resident: frozenset[str] = frozenset()  # models that need not be loaded first
    agents: tuple[Agent, ...] = ()  # the task's hints about roles: persona, model, concurrent attempts
    priority: Priority = "interactive"  # of the run or the chat
    model: str | None = None  # forced by the request; no router replaces it
    modes: tuple[Mode, ...] = ()  # for the plan of a request: the ways in which it may be run, the usual one first


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A choice, and how it was made. It is journaled with the attempt."""

    role: str
    persona: str | None
    model: str
    reason: str
    propensity: float = 1.0  # probability of this choice, given the context; 1 for a rule
    # The same probability if the user had forced no part of the choice; None if nothing was forced.
    unforced: float | None = None
    candidates: tuple[RouteCandidate, ...] = ()  # with the choice; a higher score is better
    router: str = ""  # name and version
    thinking: str = ""  # as `thinking` of a role; empty for what the registry says
    mode: Mode | None = None  # how the plan of a request is run
    advice: RouteAdvice | None = None  # of the memory; None if it was not asked
    # Why the choice cannot be carried out: the registry no longer has what the run names.
    problem: Problem | None = None


class RouterUnavailable(Exception):
    """A router cannot choose. The message says why, for the reason of what the rules choose instead."""


class Router(Protocol):
    """Chooses the role, persona and model of each attempt and chat."""

    async def choose(self, context: DecisionContext) -> Decision:
        """Return the choice. It may take a while, such as for an embedding; other steps continue meanwhile.

        Raises RouterUnavailable.
        """


log = structlog.get_logger(__name__)


class CheckedRouter:
    """Each of its choices can be carried out, or has a `problem` that says why not."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def choose(self, context: DecisionContext) -> Decision:
        try:
            decision = await self._router.choose(context)
        except RouterUnavailable as error:
            log.warning("the router cannot choose; the rules choose instead", error=repr(error.__cause__))
            return fall_back_to_rules(context, str(error))
        except Exception as error:
            log.exception("the router broke down; the rules choose instead")
            return fall_back_to_rules(context, f"the router broke down: {error!r}")
        if decision.problem is None and (why := _why_not(decision, context)):
            log.warning("the router made a choice that cannot be carried out; the rules choose instead", why=why)
            return fall_back_to_rules(context, why)
        return decision


def fall_back_to_rules(context: DecisionContext, why: str) -> Decision:
    """Return what the rules choose, and `why` they do in place of a router."""
    decision = by_rules(context)
    return replace(decision, reason=f"{decision.reason} ({why})")


def _why_not(decision: Decision, context: DecisionContext) -> str:
    # Empty if the choice can be carried out.
    registry = context.registry
    if decision.role not in context.roles and decision.role != context.role:
        return f"the router chose the role {decision.role!r}; accepted: {', '.join(context.roles)}"
    if decision.role not in registry.roles:
        return f"the router chose the role {decision.role!r}, which does not exist"
    if decision.model not in registry.models:
        return f"the router chose the model {decision.model!r}; accepted: {', '.join(registry.models)}"
    if context.model is not None and decision.model != registry.model_named(context.model):
        return f"the router chose the model {decision.model!r}, and the request forces {context.model}"
    if context.persona is not None and decision.persona != context.persona:
        return f"the router chose the persona {decision.persona!r}, and {context.persona} is named"
    if decision.mode is not None and decision.mode not in context.modes:
        return f"the router chose the mode {decision.mode!r}; accepted: {', '.join(context.modes) or 'none'}"
    if decision.persona is not None and decision.persona not in registry.personas:
        return f"the router chose the persona {decision.persona!r}; accepted: {', '.join(registry.personas) or 'none'}"
    return ""


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
    names = ", ".join(registry.roles if section == "roles" else registry.personas) or "none"
    needed = f"which step {context.step.id} needs" if context.step is not None else "which was asked for"
    message = f"there is no {name!r} any more, {needed}"
    accepted = f"{name} put back and the run tried again; now there are: {names}"
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
