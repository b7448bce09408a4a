"""Answer requests to maintain this installation with a procedure: the plan is one step that proposes it.

Such a step changes nothing. It keeps the procedure's plan, which a person then approves or not.
"""

import asyncio
from collections.abc import Callable

from orchestrator.engine.client.engine import OnText
from orchestrator.errors import Problem
from orchestrator.events import Usage
from orchestrator.planning import Accept, Extended, PlanContext, Planned, PlannedBy, PlannedPart, Planner
from orchestrator.taskir import Plan, Step, TaskIR
from procedures.library import Library
from procedures.match import Match, find_procedure
from registry.models import Registry

OUTPUT = "plan.txt"


class ProcedurePlanner:
    """A Planner that answers with a procedure where a request asks for one, and else leaves it to another planner."""

    def __init__(self, planner: Planner, library: Callable[[], Library]) -> None:
        """`library` returns the procedures that there are at the moment."""
        self._planner = planner
        self._library = library

    def why_not(self, registry: Registry) -> Problem | None:
        """Return why no request can be planned with this registry, or None."""
        return self._planner.why_not(registry)

    def planned_by(self, registry: Registry) -> PlannedBy:
        """Return which role and model plan what asks for no procedure."""
        return self._planner.planned_by(registry)

    async def plan(self, context: PlanContext, accept: Accept, on_text: OnText) -> Planned:
        """Plan the request. Raises InputError, and PlanError where a model has to be asked and cannot answer."""
        if any("procedure" in step.tools for part in context.known for step in part.steps):
            return Planned("procedure", "", Usage())
        if not context.known:
            match = await asyncio.to_thread(find_procedure, context.request, self._library(), context.files)
            if match is not None:
                step = procedure_step(match, context.registry)
                if context.check is not None:
                    context.check((step,))
                accept(PlannedPart((step,)))
                return Planned("procedure", "", Usage())
        return await self._planner.plan(context, accept, on_text)

    async def extend(self, context: PlanContext, after: str, output: str, accept: Accept, on_text: OnText) -> Extended:
        """Go on with a plan, which is always one of the other planner. Raises InputError."""
        return await self._planner.extend(context, after, output, accept, on_text)


def procedure_step(match: Match, registry: Registry) -> Step:
    """Return the step that proposes a procedure. No model is asked for it, so it has the cheapest role."""
    roles = registry.step_roles
    workers = [name for name in roles if registry.roles[name].tier == "C"]
    return Step(
        id="S1",
        actor=(workers or roles)[0],
        action=f"Plan the procedure {match.procedure}, which then waits for the approval of a person.",
        outputs=(OUTPUT,),
        run_gates=False,
        kind="tool",
        tools=("procedure",),
        arguments={"name": match.procedure, "inputs": dict(match.inputs)},
    )


def managed_task(task: TaskIR, library: Library, registry: Registry) -> TaskIR:
    """Return a task of the type `manage` with one step that proposes the procedure that its objective asks for.

    It is returned as it is if it is of another type, asks for no procedure, or has steps that act by themselves. Reads
    the disk.
    """
    acts = any(step.kind != "generate" or step.tools for step in task.plan.steps)
    if task.task_type != "manage" or acts or not registry.step_roles:
        return task
    match = find_procedure(task.objective, library)
    if match is None:
        return task
    return task.model_copy(update={"plan": Plan(steps=(procedure_step(match, registry),))})
