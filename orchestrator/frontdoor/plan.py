"""Plan a request; at the worst the plan is a single step."""

from collections.abc import Sequence

from orchestrator.engine.client.engine import OnText
from orchestrator.frontdoor.asking import Asking, PlanRequest
from orchestrator.frontdoor.builder import PlanBuilder
from orchestrator.planning import Accept, PlanError, Planned, PlannedPart
from orchestrator.steps.attempt import Models


async def make_plan(
    request: PlanRequest,
    models: Models,
    accept: Accept,
    on_text: OnText = lambda piece: None,
    known: Sequence[PlannedPart] = (),
) -> Planned:
    """Plan the request, and hand each part to `accept` the moment it is complete and checked.

    What is handed on is frozen, as are the `known` parts, which were handed on before a restart. A flawed plan is
    stopped at its first flaw; one repair, which is told the flaw, has to begin with the accepted parts and replaces
    only the rest. If that is flawed too, one more step does the whole request by itself, beside those that were
    accepted. Raises `PlanError` when the model cannot be asked at all.
    """
    builder = PlanBuilder(request.files, request.roles, known)
    asking = Asking(request, request.text, builder, models, accept, on_text)
    answer = await asking.settle()
    if answer.failure is not None:
        raise PlanError(answer.failure)
    if answer.origin is not None:
        return Planned(answer.origin, answer.reason, asking.usage, builder.goes_on_after)
    accept(builder.fall_back(request.fallback_role, request.text))
    return Planned("fallback", answer.reason, asking.usage)
