"""Define the Planner port: a plan for a request, and the rest of one. The frontdoor is an implementation.

A plan comes in parts, each of which is handed on the moment that it is complete and checked. What was handed on is
frozen: it is journaled, and its steps run while the rest is still being made. After a restart a planner is asked again,
with the parts that it had handed on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.errors import OrchestratorError, Problem
from orchestrator.events import Failure, PlanOrigin, Priority, ReplanOutcome, Usage
from orchestrator.steps.attempt import Models, OnText
from orchestrator.taskir import REQUEST_LABEL, Context, Plan, Step, TaskInput, TaskIR
from registry.models import Registry


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """The steps of a part that was accepted, and how it was `written`; empty for one that no model wrote."""

    steps: tuple[Step, ...]
    written: str = ""


Accept = Callable[[PlannedPart], None]
"""Takes a part that is complete and checked."""

CheckSteps = Callable[[Sequence[Step]], object]
"""Raises InvalidTask for steps that do not fit behind those that were accepted or checked before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanContext:
    """What to plan, and what with."""

    request: str
    files: tuple[str, ...]
    """The names that the request may refer to."""
    registry: Registry
    models: Models
    replans: int
    """How often the plan may still go on after what is asked for now."""
    priority: Priority = "interactive"
    """The class of the run, or of whoever asks for the plan."""
    known: Sequence[PlannedPart] = ()
    """The parts that were accepted before a restart, or before the step that the rest hangs on."""
    check: CheckSteps | None = None
    """The run's own check of steps that are to be handed on, which knows those of the known parts. Without it a planner
    analyses the plan by itself."""


@dataclass(frozen=True, slots=True)
class Planned:
    """How a plan came about, why it is not the first one that was made, and what it took.

    If it `goes_on_after` its last step, the rest can be had when that step is done.
    """

    origin: PlanOrigin
    reason: str
    usage: Usage
    goes_on_after: str | None = None


@dataclass(frozen=True, slots=True)
class Extended:
    """How the rest of a plan came about, or why it did not, what it took, and how often a model was asked."""

    outcome: ReplanOutcome
    reason: str
    usage: Usage = field(default_factory=Usage)
    asked: int = 0
    goes_on_after: str | None = None


@dataclass(frozen=True, slots=True)
class PlannedBy:
    """Who plans, as the events and reports have it: a role and its model."""

    role: str
    model: str


class PlanError(OrchestratorError):
    """Nobody could be asked for a plan. `failure` says why, for the run's journal."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Planner(Protocol):
    """Makes plans of requests. What it raises beside the errors named here is a defect, and fails the plan."""

    def why_not(self, registry: Registry) -> Problem | None:
        """Return why no request can be planned with this registry, or None."""

    def planned_by(self, registry: Registry) -> PlannedBy:
        """Return who is going to plan."""

    async def plan(self, context: PlanContext, accept: Accept, on_text: OnText) -> Planned:
        """Plan the request, and hand each part to `accept`; `on_text` gets what is written, as it comes.

        Raises InputError where nobody can be asked, and PlanError where who was asked cannot answer.
        """

    async def extend(self, context: PlanContext, after: str, output: str, accept: Accept, on_text: OnText) -> Extended:
        """Go on with the plan after its step `after`, which has written `output`. The rest may be nothing.

        Of the known parts, those behind that step belong to the rest already. Raises InputError.
        """


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """The plan of a request as a task of its own, which can be looked at and submitted."""

    task: TaskIR
    goes_on_after: str | None = None
    """The last step, where the plan goes on after it; what follows it is not in the task."""


def planned_task(request: str, steps: Sequence[Step], goes_on_after: str | None) -> PlannedTask:
    """Return the plan of a request as a task. A task cannot grow, so one that lacks the rest says so in its notes."""
    given = (TaskInput(type="text", label=REQUEST_LABEL, value=request),)
    task = TaskIR(objective=request, inputs=given, plan=Plan(steps=tuple(steps)))
    if goes_on_after is None:
        return PlannedTask(task)
    notes = f"The plan of the request goes on after {goes_on_after}, when its output is known; that part is not here."
    return PlannedTask(task.model_copy(update={"context": Context(notes=notes)}), goes_on_after)
