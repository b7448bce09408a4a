"""The Router port: what a choice may depend on, and what a router returns."""

from dataclasses import dataclass
from typing import Final, Protocol

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
