"""Measure what steps of one engine cost: `python -m benchmarks.simulate.step_costs`.

It reads an EngineSpec as JSON from stdin and prints `Costs` as JSON. It is a process of its own, because llama.cpp ends
the process on errors.
"""

import sys

import msgspec

from benchmarks.simulate.measure import Costs
from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import Llama
from orchestrator.engine.step_cost.attention_trial import apply_stored_attention
from orchestrator.engine.step_cost.calibration import measure_step_costs, stored_step_costs
from registry.options import LoadOptions


def costs_of(spec: EngineSpec) -> Costs:
    """Return what the steps of an engine cost, as it has measured them earlier, or measured now. Raises CannotLoad."""
    llama = Llama(spec)
    apply_stored_attention(llama, spec)
    found, draft = stored_step_costs(llama, spec) or measure_step_costs(llama), 0.0
    if spec.speculation is not None:
        options = LoadOptions(context=spec.context, slots=spec.slots, threads=spec.threads)
        smaller = Llama(EngineSpec.of(options, file=spec.speculation.draft))
        draft = measure_step_costs(smaller).decode.seconds[0]
    return Costs(found, llama.split, draft)


if __name__ == "__main__":
    told = costs_of(msgspec.json.decode(sys.stdin.buffer.read(), type=EngineSpec))
    sys.stdout.buffer.write(msgspec.json.encode(told))
