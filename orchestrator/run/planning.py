"""The Planner port: plans of requests, and the rest of plans. The frontdoor implements it.

A planner hands on its plan in parts, each as soon as it is complete and checked. A part does not change any more: it is
journaled, and its steps run while the rest is being made. After a restart the planner is asked again, and gets the
parts that it had handed on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.engine.client.engine import OnText
from orchestrator.errors import OrchestratorError, Problem
from orchestrator.registry.models import Registry
from orchestrator.run.steps.attempt import Models
from orchestrator.task.events import Failure, ModeForecast, PlanOrigin, PlanPersona, ReplanOutcome, Usage
from orchestrator.task.modes import Mode, Priority
from orchestrator.task.prediction import PredictedPath
from orchestrator.task.taskir.fields import REQUEST_LABEL
from orchestrator.task.taskir.models import Context, Plan, Step, TaskInput, TaskIR


@dataclass(frozen=True, slots=True)
class PlannedPart:
    steps: tuple[Step, ...]
    written: str = ""  # by a model, as it wrote the part; empty if no model did
    personas: tuple[PlanPersona, ...] = ()  # that the part defines and its steps name


Accept = Callable[[PlannedPart], None]  # takes a part that is complete and checked

# Raises InvalidTask for steps that do not fit behind those that were accepted or checked before.
CheckSteps = Callable[[Sequence[Step]], object]

# Returns the predicted critical path of a plan with these steps.
Predict = Callable[[Sequence[Step]], PredictedPath]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanContext:
    """What to plan, and what the planner may use."""

    request: str  # in words; for a task its objective
    files: tuple[str, ...]  # the names that the request may refer to
    registry: Registry
    models: Models
    replans: int  # how often the plan may still continue after this part
    priority: Priority = "interactive"  # of the run, or of whoever asks for the plan
    cores: int = 0  # of the machine; 0 if unknown
    known: Sequence[PlannedPart] = ()  # accepted before a restart, or before the step on which the rest depends
    # A task whose steps a planner may replace, see `Ports.plans_task`; otherwise its steps are the plan.
    task: TaskIR | None = None
    has_tools: bool = False  # tools are configured that can do what no model can, such as looking something up
    # The run's check of new steps, which knows those of the known parts. Without it the planner analyses the plan.
    check: CheckSteps | None = None
    # With "direct", the plan is one step that answers the whole request, and no model is asked for it.
    mode: Mode = "as-planned"
    sizes: Mapping[str, int] = field(default_factory=dict)  # bytes of the files, by name, if known
    # If given, a plan that is predicted to be no better than a direct answer gives way to it.
    predict: Predict | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    origin: PlanOrigin
    # Why it is not the first plan that was made, or why the request is answered directly; else empty.
    reason: str
    usage: Usage
    goes_on_after: str | None = None  # the last step, if the rest can be planned when it is done
    forecast: ModeForecast | None = None  # of the plan and a direct answer, if they were compared
    wanted: tuple[str, ...] = ()  # as in PlanFinished


@dataclass(frozen=True, slots=True)
class Extended:
    """The rest of a plan, or why there is none."""

    outcome: ReplanOutcome
    reason: str  # what went wrong on the way
    usage: Usage = field(default_factory=Usage)
    asked: int = 0  # how often a model was asked
    goes_on_after: str | None = None  # as in `Planned`
    wanted: tuple[str, ...] = ()  # as in `Planned`, for the whole plan


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
    """Makes plans of requests. Any error not named here is a defect, and the plan fails."""

    def why_not(self, registry: Registry) -> Problem | None:
        """Return why no request can be planned with this registry, or None."""

    def planned_by(self, registry: Registry) -> PlannedBy:
        """Return which role and model will plan."""

    async def plan(self, context: PlanContext, accept: Accept, on_text: OnText) -> Planned:
        """Plan the request, and hand each part to `accept`; `on_text` gets what a model writes, piece by piece.

        Raises InputError if `why_not` has a reason, RequestIncomplete, and PlanError if the model cannot answer.
        """

    async def extend(self, context: PlanContext, after: str, output: str, accept: Accept, on_text: OnText) -> Extended:
        """Continue the plan after its step `after`, which has written `output`. The rest may have no parts.

        Known parts behind that step already belong to the rest. Raises InputError.
        """


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """The plan of a request as a task of its own, to look at or submit."""

    task: TaskIR
    goes_on_after: str | None = None  # the last step, if the plan continues after it; the rest is not in the task
    mode: Mode = "as-planned"  # how a run of the request would be carried out
    reason: str = ""  # why the request is answered directly if nobody forced that, or what was wrong with the plan


def planned_task(
    request: str,
    steps: Sequence[Step],
    goes_on_after: str | None,
    wanted: tuple[str, ...] = (),
    mode: Mode = "as-planned",
    reason: str = "",
) -> PlannedTask:
    """Return the plan of a request as a task. A task cannot grow, so its notes say that the rest is missing."""
    task_inputs = (TaskInput(type="text", label=REQUEST_LABEL, value=request),)
    plan = Plan(steps=tuple(steps), wanted=wanted) if wanted else Plan(steps=tuple(steps))
    task = TaskIR(objective=request, inputs=task_inputs, plan=plan)
    if goes_on_after is None:
        return PlannedTask(task, None, mode, reason)
    notes = f"The plan of the request continues after {goes_on_after}, when its output is known; that part is not here."
    return PlannedTask(task.model_copy(update={"context": Context(notes=notes)}), goes_on_after, mode, reason)
