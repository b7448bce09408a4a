"""Answer requests to maintain this installation with a procedure: the plan is one step that proposes it.

The step changes nothing; a person approves the procedure's plan or not. A request whose words a procedure fully
explains is matched without a model. Otherwise the frontdoor's model chooses, of the procedures that a request in words
may ask for, or of all for a task of the type `manage`. Most requests ask for none, so what chooses is imported only for
one that may.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Final

from orchestrator.engine.client.engine import OnText
from orchestrator.errors import Problem
from orchestrator.procedures.library import Library
from orchestrator.registry.models import Registry
from orchestrator.run.frontdoor.planner import FRONTDOOR
from orchestrator.run.planning import Accept, Extended, PlanContext, Planned, PlannedBy, PlannedPart, Planner
from orchestrator.run.steps.attempt import added
from orchestrator.run.steps.role import resolve_role
from orchestrator.task.analysis import analyze_task
from orchestrator.task.events import Usage
from orchestrator.task.taskir.models import Step, TaskIR

if TYPE_CHECKING:
    from orchestrator.procedures.choice import ProcedureChoice

CHOICE: Final = "orchestrator.procedures.choice:procedure_choice"


class ProcedurePlanner:
    """A Planner that answers requests for a procedure, and leaves all others to another planner."""

    def __init__(self, planner: Planner, library: Callable[[], Library]) -> None:
        # `library` returns the current procedures
        self._planner = planner
        self._library = library

    def why_not(self, registry: Registry) -> Problem | None:
        """Return why this registry cannot plan any request, or None."""
        return self._planner.why_not(registry)

    def planned_by(self, registry: Registry) -> PlannedBy:
        """Return the role and the model that plan other requests."""
        return self._planner.planned_by(registry)

    async def plan(self, context: PlanContext, accept: Accept, on_text: OnText) -> Planned:
        """Plan the request. Raises InputError, and PlanError if a model is needed and cannot answer."""
        if any("procedure" in step.tools for part in context.known for step in part.steps):
            return Planned("procedure", "", Usage())
        choice = None if context.known else await self._choice(context, on_text)
        reason, usage = ("", Usage()) if choice is None else (choice.reason, choice.usage)
        if choice is not None and (step := choice.step(context.registry)) is not None:
            _accept((step,), context, accept)
            return Planned("procedure", reason, usage)
        if context.task is not None:
            if not context.known:
                graph = analyze_task(context.task, files=context.files)
                _accept(tuple(graph.steps.values()), context, accept)
            return Planned("taskir", reason, usage, wanted=context.task.plan.wanted)
        planned = await self._planner.plan(context, accept, on_text)
        return replace(planned, usage=added(usage, planned.usage))

    async def extend(self, context: PlanContext, after: str, output: str, accept: Accept, on_text: OnText) -> Extended:
        """Continue a plan, which is always one of the other planner. Raises InputError."""
        return await self._planner.extend(context, after, output, accept, on_text)

    async def _choice(self, context: PlanContext, on_text: OnText) -> "ProcedureChoice | None":
        # None: the request asks for no procedure
        library = self._library()
        possible = await asyncio.to_thread(library.possible, context.request, context.files)
        if not possible and context.task is None:
            return None
        choose = await asyncio.to_thread(resolve_name, CHOICE)
        choice: ProcedureChoice = await choose(context, library, possible, on_text)
        return choice


def offers_procedures(registry: Registry) -> bool:
    """Return whether the model of the role `frontdoor` can choose a procedure; embedded models cannot."""
    # embedded models are not trained on the choice, and have no prompt for it
    return FRONTDOOR in registry.usable_roles and bool(resolve_role(registry, FRONTDOOR).prompts.procedures)


def asks_for_procedure(task: TaskIR, registry: Registry) -> bool:
    """Return whether the frontdoor is asked for a procedure for a task, as in `Ports.plans_task`."""
    return may_be_procedure(task, registry) and offers_procedures(registry)


def may_be_procedure(task: TaskIR, registry: Registry) -> bool:
    """Return whether the steps of a task may be replaced by one that proposes a procedure."""
    acts = any(step.acts for step in task.plan.steps)
    return task.task_type == "manage" and not acts and bool(registry.step_roles)


def _accept(steps: Sequence[Step], context: PlanContext, accept: Accept) -> None:
    if context.check is not None:
        context.check(steps)
    accept(PlannedPart(tuple(steps)))
