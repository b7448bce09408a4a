"""Plan with the registry's role `frontdoor`: the implementation of the Planner port that asks a model."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.engine.client.engine import OnText
from orchestrator.engine.errors import EngineError
from orchestrator.errors import InputError, Problem, RequestIncomplete
from orchestrator.pool.errors import PoolError
from orchestrator.run.frontdoor.builder import PlanBuilder
from orchestrator.run.frontdoor.compact import plan_text
from orchestrator.run.frontdoor.direct import DirectAnswer, direct_answer, fits, why_no_direct
from orchestrator.run.frontdoor.generation import PlanGeneration, PlanRequest
from orchestrator.run.frontdoor.personas import personas_hint
from orchestrator.run.frontdoor.request import missing_needs
from orchestrator.run.frontdoor.trial import EARLY_QUALITY, PlanTrial
from orchestrator.run.frontdoor.wanted import wanted_outputs
from orchestrator.run.planning import Accept, Extended, PlanContext, PlanError, Planned, PlannedBy, PlannedPart
from orchestrator.run.routing import NO_MODEL
from orchestrator.run.steps.attempt import Models
from orchestrator.run.steps.errors import map_error
from orchestrator.run.steps.prompt import after_parts, plan_messages
from orchestrator.run.steps.role import resolve_role
from orchestrator.task.events import Usage
from orchestrator.task.taskir import Step
from registry.models import Registry

FRONTDOOR: Final = "frontdoor"

SHOWN_LENGTHS: Final = (4000, 2000, 1000, 500)
"""Characters of a step's output that the model is shown for the rest of a plan: the most that the context allows."""

PLAN_TOKENS: Final = 4096
"""A plan may have so many tokens, or as many as the role's `max_tokens` where that is more; a model that finds no end
does not fill its whole context."""

LEAST_PLAN_TOKENS: Final = 64
"""A prompt for the rest of a plan that leaves less of the context than this is too long: hardly two steps fit in."""


class FrontdoorPlanner:
    """Has the model of the role `frontdoor` write plans."""

    def why_not(self, registry: Registry) -> Problem | None:
        """Return why no request can be planned with this registry, or None."""
        if FRONTDOOR not in registry.roles:
            return Problem(f"{registry.path}: roles", f"there is no {FRONTDOOR}", "a role that plans requests")
        if reason := registry.why_not(FRONTDOOR):
            return Problem(f"{registry.path}: roles.{FRONTDOOR}", reason, "a model that is there")
        return why_no_direct(registry)

    def planned_by(self, registry: Registry) -> PlannedBy:
        """Return the role `frontdoor`, and its model."""
        role = registry.roles.get(FRONTDOOR)
        return PlannedBy(FRONTDOOR, NO_MODEL if role is None else role.model)

    async def plan(self, context: PlanContext, accept: Accept, on_text: OnText) -> Planned:
        """Plan the request as `make_plan` does, or answer it directly, if nothing that it needs is missing.

        Raises InputError, RequestIncomplete, PlanError.
        """
        if not context.known and (missing := await asyncio.to_thread(lacks, context)):
            raise RequestIncomplete(*missing)
        if context.mode == "direct" or (context.known and not context.known[-1].written):
            return await _answer_directly(context, accept)  # the last part is not a model's: it is the direct answer
        return await make_plan(await self._request(context), context.models, accept, on_text, context.known)

    async def extend(self, context: PlanContext, after: str, output: str, accept: Accept, on_text: OnText) -> Extended:
        """Go on with the plan as `extend_plan` does. Raises InputError."""
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
            check=context.check,
            personas=registry.personas_in_use,
            step_context={name: registry.models[registry.roles[name].model].step_context for name in roles},
        )


def lacks(context: PlanContext) -> tuple[str, ...]:
    """Return what the request needs and is not here, one sentence for each thing."""
    return missing_needs(context.request, context.files, context.has_tools)


async def make_plan(
    request: PlanRequest,
    models: Models,
    accept: Accept,
    on_text: OnText = lambda piece: None,
    known: Sequence[PlannedPart] = (),
) -> Planned:
    """Plan the request, and hand each part to `accept` the moment it is complete and checked.

    What is handed on is frozen, as are the `known` parts, which were handed on before a restart. A flawed plan is
    stopped at its first flaw; one repair, which is shown the flaw, has to begin with the parts that were handed on and
    replaces the rest. If that is flawed too, one more step does the whole request by itself, next to those that were
    handed on.

    If the request has `predict`, parts are held back until they promise more than a direct answer, or, if they may not
    start `early`, until the plan is complete. A plan that never promises more gives way to the direct answer.
    Raises `PlanError` if the model cannot be asked, and a direct answer needs it too.
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
            check=None if trial else request.check,  # the run's own check cannot forget parts that are dropped again
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
        wanted = _accepted_directly(request.direct, accept, handed_on)
        return Planned("fallback", outcome.reason, generation.usage, wanted=wanted)
    wanted, forecast = _wanted(request, builder), None
    if trial is not None:
        forecast = trial.forecast(builder.steps)
        if builder.goes_on_after is None and (why := trial.why_direct()):
            wanted = _accepted_directly(request.direct, accept)
            return Planned("direct", why, generation.usage, forecast=forecast, wanted=wanted)
        trial.keep()
    return Planned(outcome.origin, outcome.reason, generation.usage, builder.goes_on_after, forecast, wanted)


def _accepted_directly(direct: DirectAnswer, accept: Accept, before: Sequence[Step] = ()) -> tuple[str, ...]:
    """Hand on the step that answers the request, and return its outputs, which are what the user wants."""
    part = direct.part(before)
    accept(part)
    return part.steps[0].outputs


def _wanted(request: PlanRequest, builder: PlanBuilder) -> tuple[str, ...]:
    replanned = [at for at, part in enumerate(builder.accepted) if part.replan]
    return wanted_outputs(request.text, request.files, builder.parts, replanned)


async def _direct_answer(context: PlanContext) -> DirectAnswer:
    """Return the step that answers the request. It is made in a thread, since the request may have many files."""
    return await asyncio.to_thread(direct_answer, context.request, context.files, context.sizes, context.registry)


async def _answer_directly(context: PlanContext, accept: Accept) -> Planned:
    """Hand on the step that answers the request, unless that was done before a restart. Raises InputError."""
    if (problem := why_no_direct(context.registry)) is not None:
        raise InputError(problem)
    if context.known:
        return Planned("direct", "", Usage(), wanted=context.known[-1].steps[0].outputs)
    return Planned("direct", "", Usage(), wanted=_accepted_directly(await _direct_answer(context), accept))


@dataclass(frozen=True, slots=True)
class ReplanInput:
    """What the rest of a plan depends on."""

    after: str
    """The step that the plan ended with."""
    output: str
    """What that step has written."""
    known: Sequence[PlannedPart]
    """All parts that were accepted. Those behind the step belong to the rest: they were accepted before a restart."""


async def extend_plan(
    request: PlanRequest, replan: ReplanInput, models: Models, accept: Accept, on_text: OnText = lambda piece: None
) -> Extended:
    """Have the rest of a plan written, which may be nothing, and hand each part of it to `accept` as `make_plan` does.

    A flawed rest gets one repair, as a flawed plan does. If that does not help, or the model cannot be asked, the plan
    ends with what was accepted of it: the outcome is "stopped".
    """
    done = next(count for count, planned in enumerate(replan.known, 1) if planned.steps[0].id == replan.after)
    builder = PlanBuilder(
        request.files,
        request.roles,
        replan.known,
        done,
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
    wanted = _wanted(request, builder)
    origin, after = outcome.origin or "stopped", builder.goes_on_after
    return Extended(origin, reason, generation.usage, generation.asked, after, wanted)


async def _question(request: PlanRequest, replan: ReplanInput, builder: PlanBuilder, models: Models) -> tuple[str, str]:
    """Return what `_fitting_question` does. It is tried twice, since an engine may die while it counts."""
    try:
        return await _fitting_question(request, replan, builder, models)
    except (EngineError, PoolError) as error:
        if map_error(error).final:
            raise
    return await _fitting_question(request, replan, builder, models)


async def _fitting_question(
    request: PlanRequest, replan: ReplanInput, builder: PlanBuilder, models: Models
) -> tuple[str, str]:
    """Return the question for the rest of a plan, and in words how much of the step's output it leaves out.

    It shows as much of the output as the context allows. Whether the least of `SHOWN_LENGTHS` fits is left to the
    engine. Raises EngineError, PoolError.
    """
    done, output, role = plan_text(builder.accepted[: builder.done]), replan.output.strip(), request.role
    lengths = (SHOWN_LENGTHS[0], *(shorter for shorter in SHOWN_LENGTHS[1:] if shorter < len(output)))
    for length in lengths:
        text = after_parts(request.text, done, f"P{builder.done}", clip(output, length))
        if role.context is None or length == lengths[-1]:
            break
        tokens = await models.count(role.model, plan_messages(role.system, request.files, text), role.priority)
        if tokens + LEAST_PLAN_TOKENS <= role.context:
            break
    shown = f"of {len(output):,} characters of {replan.after}, {length:,} were shown" if length < len(output) else ""
    return text, shown


def clip(output: str, length: int) -> str:
    """Return the output, or the first and the last of its characters, `length` in all, with a mark between them."""
    if len(output) <= length:
        return output
    half = length // 2
    return f"{output[:half]}\n[… {len(output) - 2 * half:,} characters left out …]\n{output[-half:]}"
