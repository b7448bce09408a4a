"""Spoil right plans as models do, and ask the product what is wrong with them: so adapters learn to repair a plan."""

import random
from collections.abc import Sequence

from benchmarks.adapter.structure import ROLES
from orchestrator.run.frontdoor.builder import PlanBuilder
from orchestrator.run.frontdoor.compact import Part, PlanFlaw
from orchestrator.run.frontdoor.review import PlanReview


def flaw_of_spoiled(request: str, files: Sequence[str], parts: Sequence[Part], draw: random.Random) -> str:
    """Return what the product says of a plan that has lost something; empty if it repairs the plan by itself."""
    spoiled = [*parts]
    at = draw.randrange(len(parts))
    part = parts[at]
    names = "each" if len(part.each) > 1 else "inputs"
    listed = getattr(part, names)
    if listed and draw.random() < 0.6:
        lost = draw.randrange(len(listed))
        spoiled[at] = part.model_copy(update={names: (*listed[:lost], *listed[lost + 1 :])})
    elif part.output is not None and draw.random() < 0.6:
        spoiled[at] = part.model_copy(update={"output": None})
    else:
        del spoiled[at]
    return _flaw(request, files, spoiled)


def _flaw(request: str, files: Sequence[str], parts: Sequence[Part]) -> str:
    builder = PlanBuilder(files, ROLES, reads_named=True, request=request)
    review = PlanReview(request, files, ROLES, builder, lambda made: None)
    try:
        for part in parts:
            review.take(part)
            if review.looped:
                break
        review.close()
    except PlanFlaw as flaw:
        return str(flaw)
    return ""
