"""Define the Router port: what a choice may depend on, and what a router returns."""

from dataclasses import dataclass
from typing import Final, Protocol

from orchestrator.errors import Problem
from orchestrator.task.events import InputSize, Mode, Priority, RouteAdvice, RouteCandidate
from orchestrator.task.failures import FailedAttempt
from orchestrator.task.taskir import Agent, Step, TaskIR
from registry.models import Registry

NO_MODEL: Final = "none"
"""Stands for the model in a decision that cannot be carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionContext:
    """All that a choice may depend on. A chat or a plan, which is no step of a run, has neither `task` nor `step`."""

    registry: Registry
    """The registry in force. In a run it still holds the entries that were removed since the run was accepted."""
    role: str
    """The role that is asked for: the step's actor, or whom a failure was escalated to."""
    roles: tuple[str, ...]
    """The roles that may be chosen instead: those that do steps, with a model that can be used."""
    objective: str = ""
    """What is wanted in words: the task's objective, the request of a run, or what the user of a chat said last."""
    task: TaskIR | None = None
    step: Step | None = None
    persona: str | None = None
    """The persona that the step or the user has named, which a router does not replace."""
    inputs: tuple[InputSize, ...] = ()
    """What the step reads, by name, with its size where that is known."""
    failures: tuple[FailedAttempt, ...] = ()
    """The step's earlier failures, oldest first, each with the role that had it."""
    slack: float = 0.0
    """Seconds by which the step may be late without delaying the end of its run, by prediction."""
    resident: frozenset[str] = frozenset()
    """The models that need not be loaded first."""
    agents: tuple[Agent, ...] = ()
    """The task's hints about roles: persona, model and how many attempts may run at once."""
    priority: Priority = "interactive"
    """The class of the run or the chat."""
    model: str | None = None
    """The model that the user's request forces, which no router replaces."""
    modes: tuple[Mode, ...] = ()
    """Of the plan of a request, which is no step: the ways in which it may be run, the usual one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A choice, and how it was made. It is journaled with the attempt."""

    role: str
    persona: str | None
    """The persona's name; None for none."""
    model: str
    reason: str
    """Why this was chosen, in words."""
    propensity: float = 1.0
    """How probable this choice was, given the context; 1 for a rule."""
    unforced: float | None = None
    """How probable the same choice would have been if the user had forced no part of it; None if nothing was forced."""
    candidates: tuple[RouteCandidate, ...] = ()
    """What was considered, the choice included, each with its score; a higher score is better."""
    router: str = ""
    """The router that made it, and its version."""
    thinking: str = ""
    """How much the model may think, as `thinking` of a role; empty for what the registry says."""
    mode: Mode | None = None
    """How the plan of a request is run; None for what is no plan."""
    advice: RouteAdvice | None = None
    """What the memory advised; None where it was not asked."""
    problem: Problem | None = None
    """Why the choice cannot be carried out: what the run names is no longer in the registry."""


class Router(Protocol):
    """Chooses the role, persona and model of each attempt and of each chat."""

    async def choose(self, context: DecisionContext) -> Decision:
        """Return the choice. It may take a while, such as for an embedding; other steps go on meanwhile."""
