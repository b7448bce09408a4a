"""Choose the procedure that a request means: by its words, or by the frontdoor's model.

A grammar limits the model to existing procedures and inputs, or none.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from orchestrator.engine.client.engine import OnText
from orchestrator.engine.errors import EngineError
from orchestrator.pool.errors import PoolError
from orchestrator.procedures.errors import ProcedureError
from orchestrator.procedures.forms import InputForm, Procedure
from orchestrator.procedures.library import Library
from orchestrator.procedures.match import Match, find_procedure
from orchestrator.procedures.plan import check_inputs
from orchestrator.procedures.planner import may_be_procedure, offers_procedures
from orchestrator.registry.models import Registry
from orchestrator.run.frontdoor.planner import FRONTDOOR, lacks
from orchestrator.run.planning import PlanContext
from orchestrator.run.steps.attempt import added, map_error
from orchestrator.run.steps.role import plan_messages, resolve_role
from orchestrator.task.events import Usage
from orchestrator.task.taskir.json_text import read_json
from orchestrator.task.taskir.models import Plan, Step, TaskIR

OUTPUT: Final = "plan.txt"
NONE: Final = "none"  # what the model answers if it means no procedure; one of this name is never offered
CHOICE_TOKENS: Final = 512
MAX_TEXT: Final = 1000
MAX_LIST: Final = 50
_JSON_TYPES: Final = {"integer": "integer", "number": "number", "boolean": "boolean"}


@dataclass(frozen=True, slots=True)
class ProcedureChoice:
    """Which procedure a request asks for."""

    match: Match | None = None  # None: no procedure
    reason: str = ""  # what was wrong with the model's answers; empty for nothing
    usage: Usage = field(default_factory=Usage)

    def step(self, registry: Registry) -> Step | None:
        """Return the step that proposes it; None for no procedure."""
        return None if self.match is None else procedure_step(self.match, registry)


async def procedure_choice(
    context: PlanContext, library: Library, possible: Collection[str], on_text: OnText
) -> ProcedureChoice:
    """Return the procedure of a request that may mean one of those in `possible`, or of a task of the type `manage`."""
    match = await asyncio.to_thread(find_procedure, context.request, library, context.files)
    if match is not None:
        return ProcedureChoice(match)
    if not offers_procedures(context.registry):
        return ProcedureChoice()
    missing = () if context.task is not None else await asyncio.to_thread(lacks, context)
    if missing:
        return ProcedureChoice()
    offered = await asyncio.to_thread(_offered, library, possible if context.task is None else library.files())
    return await choose_procedure(offered, context, on_text) if offered else ProcedureChoice()


async def choose_procedure(
    offered: Sequence[Procedure], context: PlanContext, on_text: OnText = lambda _piece: None
) -> ProcedureChoice:
    """Have the model of the role `frontdoor` choose one of these procedures and its inputs, or none.

    It is asked again if the inputs are not valid. If that fails, or it cannot be asked, the choice is none.
    """
    role = resolve_role(context.registry, FRONTDOOR, priority=context.priority)
    system = "\n".join(
        [role.prompts.procedures, *map(_shown, offered), f"Models: {', '.join(context.registry.models)}"]
    )
    by_id, usage, flaws = {candidate.id: candidate for candidate in offered}, Usage(), list[str]()
    for _ in range(2):
        prompt = f"{context.request}\nThe previous answer failed: {flaws[-1]}" if flaws else context.request
        request = role.request(
            plan_messages(system, (), prompt), max_tokens=CHOICE_TOKENS, schema=choice_schema(offered), fit=1
        )
        try:
            completion = await context.models.generate(role.model, request, on_text)
        except (EngineError, PoolError) as error:
            return ProcedureChoice(None, "; ".join([*flaws, map_error(error).message]), usage)
        usage = added(usage, completion.usage)
        document, problems = read_json(completion.text)
        if problems or not isinstance(document, dict):
            flaws.append(f"it is no choice of a procedure: {problems[0] if problems else completion.text[:80]!r}")
            continue
        if document.get("procedure") not in by_id:
            return ProcedureChoice(None, "; ".join(flaws), usage)
        match = Match(str(document["procedure"]), dict(document.get("inputs") or {}))
        try:
            check_inputs(by_id[match.procedure], match.inputs)
        except ProcedureError as error:
            flaws.append(str(error))
            continue
        return ProcedureChoice(match, "; ".join(flaws), usage)
    return ProcedureChoice(None, "; ".join(flaws), usage)


def choice_schema(offered: Sequence[Procedure]) -> dict[str, Any]:
    """Return the JSON Schema of a choice: one of these procedures with its inputs, or none."""
    none = {
        "type": "object",
        "properties": {"procedure": {"const": NONE}},
        "required": ["procedure"],
        "additionalProperties": False,
    }
    return {"anyOf": [*map(_choice_of, offered), none]}


def procedure_step(match: Match, registry: Registry) -> Step:
    """Return the step that proposes a procedure. It asks no model, so it has the cheapest role."""
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
    """Return a task of the type `manage` with one step that proposes the procedure of its objective. Reads the disk.

    The task is unchanged if it is of another type, has steps that act by themselves, or matches no procedure.
    """
    if not may_be_procedure(task, registry):
        return task
    match = find_procedure(task.objective, library)
    if match is None:
        return task
    return task.model_copy(update={"plan": Plan(steps=(procedure_step(match, registry),))})


def _offered(library: Library, names: Collection[str]) -> list[Procedure]:
    # a procedure that needs a secret is never offered
    candidates = [candidate for candidate in library.procedures() if isinstance(candidate, Procedure)]
    return [
        candidate
        for candidate in candidates
        if candidate.id in names
        and candidate.id != NONE
        and not any(entry.type == "secret" and not entry.optional for entry in candidate.form.inputs.values())
    ]


def _shown(procedure: Procedure) -> str:
    form = procedure.form
    inputs = "".join(f"\n    {name}: {entry.description}" for name, entry in _choosable(procedure).items())
    return f"  {form.id}: {form.description.strip()}{inputs}"


def _choosable(procedure: Procedure) -> Mapping[str, InputForm]:
    return {name: entry for name, entry in procedure.form.inputs.items() if entry.type != "secret"}


def _choice_of(procedure: Procedure) -> dict[str, Any]:
    inputs = _choosable(procedure)
    needed = [name for name, entry in inputs.items() if entry.default is None and not entry.optional]
    stated = {
        "type": "object",
        "properties": {name: _value_schema(entry) for name, entry in inputs.items()},
        "required": needed,
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {"procedure": {"const": procedure.id}, "inputs": stated},
        "required": ["procedure", "inputs"],
        "additionalProperties": False,
    }


def _value_schema(entry: InputForm) -> dict[str, Any]:
    # `check_inputs` checks patterns and limits afterwards
    text = {"type": "string", "minLength": 1, "maxLength": MAX_TEXT}
    if entry.choices:
        return {"enum": [*entry.choices]}
    if entry.type == "list":
        return {"type": "array", "items": text, "maxItems": MAX_LIST}
    return {"type": _JSON_TYPES[entry.type]} if entry.type in _JSON_TYPES else text
