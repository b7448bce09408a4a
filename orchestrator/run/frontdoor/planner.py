"""Plan with the model of the role `frontdoor`: an implementation of the Planner port.

Code says which outputs the user wants, in the order of the request: the files that it names; outputs of parts that a
clause of it asks for, even if other steps read them ("Summarize each file, then compare them"); and outputs that no
other step reads. Intermediate results are not wanted: no clause asks for them, and a later step reads all that they
were made from.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from orchestrator.engine.client.engine import OnText
from orchestrator.engine.errors import EngineError
from orchestrator.errors import InputError, Problem, RequestIncomplete
from orchestrator.pool.errors import PoolError
from orchestrator.registry.models import Registry
from orchestrator.run.frontdoor.builder import PlanBuilder
from orchestrator.run.frontdoor.clauses import Clause, clauses_of, made_by
from orchestrator.run.frontdoor.compact import plan_text
from orchestrator.run.frontdoor.direct import EARLY_QUALITY, DirectAnswer, PlanTrial, direct_answer, fits, why_no_direct
from orchestrator.run.frontdoor.generation import PlanGeneration, PlanRequest
from orchestrator.run.frontdoor.personas import personas_hint
from orchestrator.run.frontdoor.request import RequestFiles, missing_needs
from orchestrator.run.frontdoor.words import related
from orchestrator.run.planning import Accept, Extended, PlanContext, PlanError, Planned, PlannedBy, PlannedPart
from orchestrator.run.routing import NO_MODEL
from orchestrator.run.steps.attempt import Models, map_error
from orchestrator.run.steps.role import after_parts, plan_messages, resolve_role
from orchestrator.task.events import Usage
from orchestrator.task.taskir.models import Step

FRONTDOOR: Final = "frontdoor"

# characters of a step's output that the rest of a plan may see; the most that fits is shown
SHOWN_LENGTHS: Final = (4000, 2000, 1000, 500)

# least value of the role's `max_tokens`: a model that finds no end would fill its whole context
PLAN_TOKENS: Final = 4096

# what a prompt for the rest of a plan has to leave of the context; hardly two steps fit in less
LEAST_PLAN_TOKENS: Final = 64


class FrontdoorPlanner:
    """Has the model of the role `frontdoor` write plans."""

    def why_not(self, registry: Registry) -> Problem | None:
        """Return why this registry cannot plan any request, or None."""
        if FRONTDOOR not in registry.roles:
            return Problem(f"{registry.path}: roles", f"there is no {FRONTDOOR}", "a role that plans requests")
        if reason := registry.why_not(FRONTDOOR):
            return Problem(f"{registry.path}: roles.{FRONTDOOR}", reason, "a model that is there")
        return why_no_direct(registry)

    def planned_by(self, registry: Registry) -> PlannedBy:
        role = registry.roles.get(FRONTDOOR)
        return PlannedBy(FRONTDOOR, NO_MODEL if role is None else role.model)

    async def plan(self, context: PlanContext, accept: Accept, on_text: OnText) -> Planned:
        """Plan the request as `make_plan` does, or answer it directly.

        Raises InputError, PlanError, and RequestIncomplete if something that the request needs is missing.
        """
        if not context.known and (missing := await asyncio.to_thread(lacks, context)):
            raise RequestIncomplete(*missing)
        if context.mode == "direct" or (context.known and not context.known[-1].written):
            return await _answer_directly(context, accept)  # no model wrote the last part: it is the direct answer
        return await make_plan(await self._request(context), context.models, accept, on_text, context.known)

    async def extend(self, context: PlanContext, after: str, output: str, accept: Accept, on_text: OnText) -> Extended:
        """Continue the plan as `extend_plan` does. Raises InputError."""
        replan = ReplanInput(after, output, context.known)
        return await extend_plan(await self._request(context), replan, context.models, accept, on_text)

    async def _request(self, context: PlanContext) -> PlanRequest:
        registry = context.registry
        if (problem := self.why_not(registry)) is not None:
            raise InputError(problem)
        roles = registry.plan_roles
        role = resolve_role(registry, FRONTDOOR, priority=context.priority)
        direct = await _direct_answer(context)
        quality = registry.roles[FRONTDOOR].plan_quality
        by_cores = registry.roles[FRONTDOOR].plans_by_cores
        return PlanRequest(
            text=context.request,
            files=context.files,
            roles=roles,
            direct=direct,
            predict=context.predict if fits(direct, context.sizes, registry) else None,
            early=quality is not None and quality >= EARLY_QUALITY,
            role=replace(role, max_tokens=max(role.max_tokens or 0, PLAN_TOKENS)),
            fit=1,
            replans=context.replans,
            cores=context.cores if by_cores else 0,
            check=context.check,
            personas=registry.personas_in_use,
            step_context={name: registry.models[registry.roles[name].model].step_context for name in roles},
        )


def lacks(context: PlanContext) -> tuple[str, ...]:
    """Return one sentence for each thing that the request needs and that is not here."""
    return missing_needs(context.request, context.files, context.has_tools)


async def make_plan(
    request: PlanRequest,
    models: Models,
    accept: Accept,
    on_text: OnText = lambda piece: None,
    known: Sequence[PlannedPart] = (),
) -> Planned:
    """Plan the request, and hand each part to `accept` as soon as it is complete and checked.

    Parts that were handed on never change, nor do the `known` parts, which were handed on before a restart. A flawed
    plan stops at its first flaw. One repair, which sees the flaw, has to start with the parts that were handed on and
    replaces the rest. If that is flawed too, one more step does the whole request.

    If the request has `predict`, parts are held back until they promise more than a direct answer or, without `early`,
    until the plan is complete. A plan that promises no more gives way to the direct answer.
    Raises `PlanError` if the model cannot be asked and a direct answer needs it too.
    """
    text = request.text + (personas_hint(request.personas) if request.offers_personas else "")
    trial = None
    if request.predict is not None and not known:
        trial = PlanTrial(request.direct, request.predict, accept, early=request.early)

    def new_builder() -> PlanBuilder:
        return PlanBuilder(
            request.files,
            request.roles,
            known,
            check=None if trial else request.check,  # the run's own check cannot forget dropped parts
            reads_named=request.role.prompts.listed_names,
            request=request.text,
            personas=request.personas,
        )

    generation = PlanGeneration(request, text, new_builder, models, trial or accept, on_text, trial)
    outcome = await generation.run()
    builder = generation.builder
    handed_on = [] if trial is not None and not trial.kept else builder.steps
    if outcome.origin is None:
        if outcome.failure is not None and (handed_on or request.direct.model == request.role.model):
            raise PlanError(outcome.failure)
        outputs = _accepted_directly(request.direct, accept, handed_on)
        return Planned("fallback", outcome.reason, generation.usage, wanted=outputs)
    outputs, forecast = _outputs_of_answer(request, builder), None
    if trial is not None:
        forecast = trial.forecast(builder.steps)
        if builder.goes_on_after is None and (why := trial.why_direct()):
            outputs = _accepted_directly(request.direct, accept)
            return Planned("direct", why, generation.usage, forecast=forecast, wanted=outputs)
        trial.keep()
    return Planned(outcome.origin, outcome.reason, generation.usage, builder.goes_on_after, forecast, outputs)


def _accepted_directly(direct: DirectAnswer, accept: Accept, before: Sequence[Step] = ()) -> tuple[str, ...]:
    # the outputs of this step are what the user wants
    part = direct.part(before)
    accept(part)
    return part.steps[0].outputs


def _outputs_of_answer(request: PlanRequest, builder: PlanBuilder) -> tuple[str, ...]:
    replanned = [at for at, part in enumerate(builder.accepted) if part.replan]
    return wanted_outputs(request.text, request.files, builder.parts, replanned)


async def _direct_answer(context: PlanContext) -> DirectAnswer:
    # in a thread, since the request may have many files
    return await asyncio.to_thread(direct_answer, context.request, context.files, context.sizes, context.registry)


async def _answer_directly(context: PlanContext, accept: Accept) -> Planned:
    if (problem := why_no_direct(context.registry)) is not None:
        raise InputError(problem)
    # the step was handed on before a restart
    if context.known:
        return Planned("direct", "", Usage(), wanted=context.known[-1].steps[0].outputs)
    return Planned("direct", "", Usage(), wanted=_accepted_directly(await _direct_answer(context), accept))


@dataclass(frozen=True, slots=True)
class ReplanInput:
    """What the rest of a plan depends on: the `output` of the step `after`, with which the plan ended."""

    after: str
    output: str
    # all accepted parts; those after the step belong to the rest (accepted before a restart)
    known: Sequence[PlannedPart]


async def extend_plan(
    request: PlanRequest, replan: ReplanInput, models: Models, accept: Accept, on_text: OnText = lambda piece: None
) -> Extended:
    """Have the rest of a plan written, perhaps nothing, and hand each part to `accept` as `make_plan` does.

    A flawed rest gets one repair. If that fails, or the model cannot be asked, the plan ends with the parts that were
    accepted, and the outcome is "stopped".
    """
    finished = next(count for count, planned in enumerate(replan.known, 1) if planned.steps[0].id == replan.after)
    builder = PlanBuilder(
        request.files,
        request.roles,
        replan.known,
        finished,
        request.check,
        reads_named=request.role.prompts.listed_names,
        request=request.text,
        personas=request.personas,
    )
    try:
        text, left_out = await _question(request, replan, builder, models)
    except (EngineError, PoolError) as error:
        return Extended("stopped", map_error(error).message)
    rest = replace(request, fit=LEAST_PLAN_TOKENS)
    generation = PlanGeneration(rest, text, lambda: builder, models, accept, on_text)
    outcome = await generation.run()
    reason = "; ".join(part for part in (left_out, outcome.reason) if part)
    outputs = _outputs_of_answer(request, builder)
    origin, after = outcome.origin or "stopped", builder.goes_on_after
    return Extended(origin, reason, generation.usage, generation.asked, after, outputs)


async def _question(request: PlanRequest, replan: ReplanInput, builder: PlanBuilder, models: Models) -> tuple[str, str]:
    # tried twice, since an engine may die while it counts
    try:
        return await _fitting_question(request, replan, builder, models)
    except (EngineError, PoolError) as error:
        if map_error(error).final:
            raise
    return await _fitting_question(request, replan, builder, models)


async def _fitting_question(
    request: PlanRequest, replan: ReplanInput, builder: PlanBuilder, models: Models
) -> tuple[str, str]:
    # the question, and how much of the step's output it leaves out; raises EngineError, PoolError
    earlier_parts, output, role = plan_text(builder.accepted[: builder.done]), replan.output.strip(), request.role
    lengths = (SHOWN_LENGTHS[0], *(shorter for shorter in SHOWN_LENGTHS[1:] if shorter < len(output)))
    for length in lengths:
        text = after_parts(request.text, earlier_parts, f"P{builder.done}", clip(output, length))
        # the engine decides whether the shortest fits
        if role.context is None or length == lengths[-1]:
            break
        messages = plan_messages(role.system, request.files, text, request.cores)
        tokens = await models.count(role.model, messages, role.priority)
        if tokens + LEAST_PLAN_TOKENS <= role.context:
            break
    shown = f"of {len(output):,} characters of {replan.after}, {length:,} were shown" if length < len(output) else ""
    return text, shown


def clip(output: str, length: int) -> str:
    """Return the first and the last characters of the output, `length` in all, with a mark between them."""
    if len(output) <= length:
        return output
    half = length // 2
    return f"{output[:half]}\n[… {len(output) - 2 * half:,} characters left out …]\n{output[-half:]}"


@dataclass(frozen=True, slots=True)
class _Part:
    steps: tuple[Step, ...]
    clause: Clause | None  # the clause of the request that asks for it

    @property
    def place(self) -> float:
        return self.clause.start if self.clause is not None else inf


def wanted_outputs(
    request: str, files: Sequence[str], parts: Sequence[tuple[Step, ...]], replanned: Collection[int] = ()
) -> tuple[str, ...]:
    """Return the names of the outputs that the user wants.

    `parts` are the steps of the plan, part by part. For the rest of the plan, the frontdoor has read the outputs of the
    parts at the positions `replanned`.
    """
    named = RequestFiles.of(request, files).outputs
    clauses = clauses_of(request)
    plan_parts = [_Part(steps, _clause_for(steps, clauses)) for steps in parts]
    readers = _readers(plan_parts)
    for at in replanned:
        readers.update((name, [at + 1]) for name in _outputs(plan_parts[at]) if at + 1 < len(plan_parts))
    wanted_parts = [part for at, part in enumerate(plan_parts) if _is_wanted(part, at, plan_parts, readers)]
    written = [name for part in sorted(wanted_parts, key=lambda part: part.place) for name in _outputs(part)]
    all_written = {name for part in plan_parts for name in _outputs(part)}
    return tuple(dict.fromkeys([*(name for name in named if name in all_written), *written]))


def _outputs(part: _Part) -> list[str]:
    return [name for step in part.steps for name in step.outputs]


def _clause_for(steps: Sequence[Step], clauses: Sequence[Clause]) -> Clause | None:
    products = made_by(steps[0].action)
    return next(
        (clause for clause in clauses if any(related(word, order) for word in products for order in clause.makes)), None
    )


def _readers(parts: Sequence[_Part]) -> dict[str, list[int]]:
    readers: dict[str, list[int]] = {}
    for at, part in enumerate(parts):
        for step in part.steps:
            for name in (*step.inputs, *([step.foreach] if step.foreach else [])):
                readers.setdefault(name, []).append(at)
    return readers


def _is_wanted(part: _Part, at: int, parts: Sequence[_Part], readers: Mapping[str, list[int]]) -> bool:
    if part.clause is not None:
        return True
    if any(readers.get(name) for name in _outputs(part)):
        return False
    sources = {name for step in part.steps for name in step.inputs}
    later = ({name for step in later_part.steps for name in step.inputs} for later_part in parts[at + 1 :])
    return not sources or not any(sources <= read for read in later)
