"""Define the Planner port, which makes plans of requests, and the rest of plans. The frontdoor implements it.

A planner hands on its plan in parts, each as soon as it is complete and checked. What was handed on does not change any
more: it is journaled, and its steps run while the rest is still being made. After a restart a planner is asked again,
and is given the parts that it had handed on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.engine.client.engine import OnText
from orchestrator.errors import OrchestratorError, Problem
from orchestrator.run.steps.attempt import Models
from orchestrator.task.events import (
    Failure,
    Mode,
    ModeForecast,
    PlanOrigin,
    PlanPersona,
    Priority,
    ReplanOutcome,
    Usage,
)
from orchestrator.task.taskir import REQUEST_LABEL, Context, Plan, Step, TaskInput, TaskIR
from registry.models import Registry


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """A part of a plan."""

    steps: tuple[Step, ...]
    written: str = ""
    """The part as a model wrote it; empty for a part that no model wrote."""
    personas: tuple[PlanPersona, ...] = ()
    """The personas that the part defines, which its steps name."""


Accept = Callable[[PlannedPart], None]
"""Takes a part that is complete and checked."""

CheckSteps = Callable[[Sequence[Step]], object]
"""Raises InvalidTask for steps that do not fit behind those that were accepted or checked before."""

Predict = Callable[[Sequence[Step]], float]
"""Returns how many seconds the critical path of a plan with these steps is predicted to take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanContext:
    """What to plan, and what the planner may use."""

    request: str
    """The request in words; for a task its objective."""
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
    task: TaskIR | None = None
    """The task, if it is one whose steps a planner may replace: see `Ports.plans_task`. Otherwise they are its plan."""
    has_tools: bool = False
    """Whether the configuration has tools that may do what no model can, such as looking something up."""
    check: CheckSteps | None = None
    """The run's own check of steps that are to be handed on, which knows those of the known parts. Without it a planner
    analyses the plan by itself."""
    mode: Mode = "as-planned"
    """With "direct", the plan is one step that answers the whole request, and no model is asked for it."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """The bytes of the files, by name, as far as they are known."""
    predict: Predict | None = None
    """If given, a plan that is predicted to be no better than a direct answer gives way to it."""


@dataclass(frozen=True, slots=True)
class Planned:
    """How a plan came about."""

    origin: PlanOrigin
    reason: str
    """Why it is not the first plan that was made, or why the request is answered directly; empty otherwise."""
    usage: Usage
    """What the models took for it."""
    goes_on_after: str | None = None
    """The last step, if the rest of the plan can be made when that step is done."""
    forecast: ModeForecast | None = None
    """What the plan and a direct answer were predicted to take, if they were compared."""
    wanted: tuple[str, ...] = ()
    """As in PlanFinished."""


@dataclass(frozen=True, slots=True)
class Extended:
    """How the rest of a plan came about, or why it did not."""

    outcome: ReplanOutcome
    reason: str
    """What went wrong on the way; empty if nothing did."""
    usage: Usage = field(default_factory=Usage)
    """What the models took for it."""
    asked: int = 0
    """How often a model was asked."""
    goes_on_after: str | None = None
    """As in `Planned`."""
    wanted: tuple[str, ...] = ()
    """As in `Planned`, for the whole plan."""


@dataclass(frozen=True, slots=True)
class PlannedBy:
    """The role that plans and its model, for events and reports."""

    role: str
    model: str


class PlanError(OrchestratorError):
    """No model could be asked for a plan. `failure` says why, for the run's journal."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Planner(Protocol):
    """Makes plans of requests. Any error beside those named here is a defect, and the plan fails."""

    def why_not(self, registry: Registry) -> Problem | None:
        """Return why no request can be planned with this registry, or None."""

    def planned_by(self, registry: Registry) -> PlannedBy:
        """Return which role and model are going to plan."""

    async def plan(self, context: PlanContext, accept: Accept, on_text: OnText) -> Planned:
        """Plan the request, and hand each part to `accept`; `on_text` gets what a model writes, piece by piece.

        Raises InputError where `why_not` has a reason, RequestIncomplete, and PlanError where the model cannot answer.
        """

    async def extend(self, context: PlanContext, after: str, output: str, accept: Accept, on_text: OnText) -> Extended:
        """Go on with the plan after its step `after`, which has written `output`. The rest may have no parts.

        Known parts behind that step belong to the rest already. Raises InputError.
        """


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """The plan of a request as a task of its own, which can be looked at and submitted."""

    task: TaskIR
    goes_on_after: str | None = None
    """The last step, where the plan goes on after it; what follows it is not in the task."""
    mode: Mode = "as-planned"
    """How a run of the request would be carried out."""
    reason: str = ""
    """Why the request is answered directly, if nobody has forced that; or what was wrong with the plan."""


def planned_task(
    request: str,
    steps: Sequence[Step],
    goes_on_after: str | None,
    wanted: tuple[str, ...] = (),
    mode: Mode = "as-planned",
    reason: str = "",
) -> PlannedTask:
    """Return the plan of a request as a task. A task cannot grow, so one that lacks the rest says so in its notes."""
    given = (TaskInput(type="text", label=REQUEST_LABEL, value=request),)
    plan = Plan(steps=tuple(steps), wanted=wanted) if wanted else Plan(steps=tuple(steps))
    task = TaskIR(objective=request, inputs=given, plan=plan)
    if goes_on_after is None:
        return PlannedTask(task, None, mode, reason)
    notes = f"The plan of the request goes on after {goes_on_after}, when its output is known; that part is not here."
    return PlannedTask(task.model_copy(update={"context": Context(notes=notes)}), goes_on_after, mode, reason)
