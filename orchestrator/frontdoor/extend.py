"""Go on with a plan after a step that it hung on: at the worst the plan ends with what there is of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.engine.client.engine import OnText
from orchestrator.engine.errors import EngineError
from orchestrator.frontdoor.asking import Asking, PlanRequest, plan_text
from orchestrator.frontdoor.builder import PlanBuilder
from orchestrator.planning import Accept, Extended, PlannedPart
from orchestrator.pool.errors import PoolError
from orchestrator.steps.attempt import Models
from orchestrator.steps.errors import failure_from
from orchestrator.steps.prompt import after_parts, plan_messages

TOLD_LENGTHS = (4000, 2000, 1000, 500)
"""Characters of the output that is told: as many of these as leave room for the rest of the plan."""

ROOM_TOKENS = 64
"""A prompt that leaves less of the context than this is too long: hardly two steps fit in."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a plan hangs on: the output of step `after`, and all parts that are `known`.

    Those behind that step belong to the rest already: they were accepted before a restart.
    """

    after: str
    output: str
    known: Sequence[PlannedPart]


async def extend_plan(
    request: PlanRequest, finding: Finding, models: Models, accept: Accept, on_text: OnText = lambda piece: None
) -> Extended:
    """Have the rest of a plan written, which may be nothing, and hand each part of it to `accept` as `make_plan` does.

    A flawed rest gets one repair, as a flawed plan does. If that does not help, or the model cannot be asked, the plan
    is what was accepted of it: "stopped".
    """
    done = next(count for count, planned in enumerate(finding.known, 1) if planned.steps[0].id == finding.after)
    builder = PlanBuilder(request.files, request.roles, finding.known, done)
    try:
        text, clipped = await _question(request, finding, builder, models)
    except (EngineError, PoolError) as error:
        return Extended("stopped", failure_from(error).message)
    asking = Asking(replace(request, fit=ROOM_TOKENS), text, builder, models, accept, on_text)
    answer = await asking.settle()
    reason = "; ".join(part for part in (clipped, answer.reason) if part)
    return Extended(answer.origin or "stopped", reason, asking.usage, asking.asked, builder.goes_on_after)


async def _question(request: PlanRequest, finding: Finding, builder: PlanBuilder, models: Models) -> tuple[str, str]:
    """Return what `_told` does; an engine that dies while it counts is asked once more."""
    try:
        return await _told(request, finding, builder, models)
    except (EngineError, PoolError) as error:
        if failure_from(error).final:
            raise
    return await _told(request, finding, builder, models)


async def _told(request: PlanRequest, finding: Finding, builder: PlanBuilder, models: Models) -> tuple[str, str]:
    """Return what to ask, and how much of the output it leaves out, in words. Raises what engines and the pool raise.

    It tells as much of the output as fits. Whether the least of it does is left to the engine.
    """
    done, output = plan_text(builder.accepted[: builder.done]), finding.output.strip()
    lengths = (TOLD_LENGTHS[0], *(shorter for shorter in TOLD_LENGTHS[1:] if shorter < len(output)))
    for length in lengths:
        text = after_parts(request.text, done, f"P{builder.done}", clip(output, length))
        if request.role.context is None or length == lengths[-1]:
            break
        if await _count(request, text, models) + ROOM_TOKENS <= request.role.context:
            break
    return text, _clipped(finding.after, output, length)


def _clipped(step: str, output: str, length: int) -> str:
    return f"of {len(output):,} characters of {step}, {length:,} were told" if length < len(output) else ""


async def _count(request: PlanRequest, text: str, models: Models) -> int:
    role = request.role
    return await models.count(role.model, plan_messages(role.system, request.files, text), role.priority)


def clip(output: str, length: int) -> str:
    """Return the output, or the first and the last of its characters, `length` in all, with a mark between them."""
    if len(output) <= length:
        return output
    half = length // 2
    return f"{output[:half]}\n[… {len(output) - 2 * half:,} characters left out …]\n{output[-half:]}"
