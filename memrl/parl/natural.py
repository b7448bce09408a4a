"""Count the natural requests that are planned correctly: a training may unlearn what is unlike its own requests."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from orchestrator.bench.real.measure import measure
from orchestrator.bench.real.requests import RealRequest
from orchestrator.registry.models import Registry
from orchestrator.registry.options import Adapters
from orchestrator.run.frontdoor.planner import FRONTDOOR

MOST_LOST: Final = 0.02  # of the requests


@dataclass(frozen=True, slots=True, kw_only=True)
class NaturalPlans:
    """How many of the natural requests each of two frontdoors plans correctly."""

    count: int
    current: int
    candidate: int

    @property
    def spoiled(self) -> bool:
        """Whether the candidate has unlearned more than an adapter may cost."""
        return self.current - self.candidate > MOST_LOST * self.count


def planned_correctly(
    base: Registry,
    lora: Adapters,
    requests: Sequence[RealRequest],
    folder: Path,
    progress: Callable[[int], None],
    *,
    by_cores: bool,
) -> int:
    """Return how many requests the frontdoor of a registry plans correctly with these adapters in place of its own.

    Logs go to `folder`. `progress` gets how many are done. Raises EngineError and PoolError.
    """
    role = replace(base.roles[FRONTDOOR], lora=lora, plans_by_cores=by_cores)
    model = replace(base.models[role.model], adapters=tuple(dict.fromkeys(each.file for each in lora)))
    registry = replace(
        base,
        models=MappingProxyType({**base.models, role.model: model}),
        roles=MappingProxyType({**base.roles, FRONTDOOR: role}),
    )
    done: list[str] = []

    def say(line: str) -> None:
        done.append(line)
        progress(len(done))

    return asyncio.run(measure(registry, role.model, requests, (), folder, say)).count("plan")[0]
