"""Turn the plan of a request into a task of its own, which can be looked at and submitted."""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.taskir import REQUEST_LABEL, Context, Plan, Step, TaskInput, TaskIR


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """The plan of a request as a task. It may only be the first part: the rest `goes_on_after` its last step."""

    task: TaskIR
    goes_on_after: str | None = None


def planned_task(request: str, steps: Sequence[Step], goes_on_after: str | None) -> PlannedTask:
    """Return the plan of a request. A task cannot grow, so one that lacks the rest says so in its notes."""
    given = (TaskInput(type="text", label=REQUEST_LABEL, value=request),)
    task = TaskIR(objective=request, inputs=given, plan=Plan(steps=tuple(steps)))
    if goes_on_after is None:
        return PlannedTask(task)
    notes = f"The plan of the request goes on after {goes_on_after}, when its output is known; that part is not here."
    return PlannedTask(task.model_copy(update={"context": Context(notes=notes)}), goes_on_after)
