"""Measure what steps of one engine cost: `python -m orchestrator.bench.simulate.step_costs`.

It reads an EngineSpec as JSON from stdin and prints `Costs` as JSON. It is a process of its own, because llama.cpp ends
the process on errors.
"""

import sys
from collections.abc import Sequence
from pkgutil import resolve_name
from statistics import median
from typing import Final

import msgspec

from orchestrator.bench.simulate.measure import Costs
from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import Llama
from orchestrator.engine.speculation.drafter import CannotDraft, MakeDrafter
from orchestrator.engine.step_cost.attention_trial import apply_stored_attention
from orchestrator.engine.step_cost.calibration import measure_step_costs
from orchestrator.engine.step_cost.model import Points, StepCostModel
from orchestrator.registry.options import DRAFTING

# How often the steps are measured: one measurement of a width may be a third off on a machine that others use.
TIMES: Final = 3


def costs_of(spec: EngineSpec) -> Costs:
    """Return what the steps of an engine cost, with the kind of attention that it has chosen. Raises CannotLoad."""
    llama = Llama(spec)
    apply_stored_attention(llama, spec)
    costs = median_costs([measure_step_costs(llama) for _ in range(TIMES)])
    return Costs(costs, llama.split, _draft_seconds(spec, llama))


def _draft_seconds(spec: EngineSpec, llama: Llama) -> float:
    method = next((method for name in spec.drafting if not (method := DRAFTING[name]).copies), None)
    if method is None:
        return 0.0
    make: MakeDrafter = resolve_name(method.drafter)
    try:
        drafter = make(spec, llama, lambda seconds: None)
    except CannotDraft:  # the engine drafts nothing then
        return 0.0
    for calibration in drafter.calibrations():
        calibration.measure_now()
    return drafter.seconds_per_token(1)


def median_costs(measured: Sequence[StepCostModel]) -> StepCostModel:
    """Return the median of each time in several measurements of one engine, for the sizes that all of them have."""

    def points(each: Sequence[Points]) -> Points:
        times = [dict(zip(measurement.sizes, measurement.seconds, strict=True)) for measurement in each]
        sizes = tuple(size for size in each[0].sizes if all(size in measurement for measurement in times))
        return Points(sizes, tuple(median(measurement[size] for measurement in times) for size in sizes))

    return StepCostModel(
        points([measurement.decode for measurement in measured]),
        points([measurement.verify for measurement in measured]),
        median(measurement.prefill for measurement in measured),
        median(measurement.per_cell for measurement in measured),
        measured[0].pads,
    )


if __name__ == "__main__":
    told = costs_of(msgspec.json.decode(sys.stdin.buffer.read(), type=EngineSpec))
    sys.stdout.buffer.write(msgspec.json.encode(told))
