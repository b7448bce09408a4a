"""Say what the frontdoor of this installation is to be asked, and what it has answered before."""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.errors import InputError
from orchestrator.frontdoor import PlanRequest
from orchestrator.runs.job import FRONTDOOR, plan_roles, why_no_planner
from orchestrator.taskir import REQUEST_LABEL, Context, Plan, Step, TaskInput, TaskIR
from registry import Registry


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """The plan of a request as a task. It may only be the first part: the rest `goes_on_after` its last step."""

    task: TaskIR
    goes_on_after: str | None = None


def plan_request(request: str, files: tuple[str, ...], registry: Registry, replans: int) -> PlanRequest:
    """Return what to ask the registry's frontdoor. The first role of tier C is the one to fall back on.

    After what it writes now, the plan may still go on `replans` times. Raises InputError where nobody can be asked.
    """
    if (problem := why_no_planner(registry)) is not None:
        raise InputError(problem)
    role, roles = registry.roles[FRONTDOOR], plan_roles(registry)
    workers = [name for name in roles if registry.roles[name].tier == "C"]
    return PlanRequest(
        text=request,
        files=files,
        roles=roles,
        fallback_role=(workers or roles)[0],
        model=role.model,
        system=role.system,
        context=registry.models[role.model].countable_context,
        temperature=role.temperature,
        top_p=role.top_p,
        replans=replans,
    )


def planned_task(request: str, steps: Sequence[Step], goes_on_after: str | None) -> PlannedTask:
    """Return the plan of a request. A task cannot grow, so one that lacks the rest says so in its notes."""
    given = (TaskInput(type="text", label=REQUEST_LABEL, value=request),)
    task = TaskIR(objective=request, inputs=given, plan=Plan(steps=tuple(steps)))
    if goes_on_after is None:
        return PlannedTask(task)
    notes = f"The plan of the request goes on after {goes_on_after}, when its output is known; that part is not here."
    return PlannedTask(task.model_copy(update={"context": Context(notes=notes)}), goes_on_after)
