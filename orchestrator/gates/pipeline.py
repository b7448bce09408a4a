"""Send artifacts through the gates that a step asks for, in the fixed order of `GATES`."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from time import perf_counter

from orchestrator.events import Failure, FailureKind, GateResult
from orchestrator.gates import schema
from orchestrator.gates.contract import FAILURE_KINDS, Artifact, Gate, GateContext
from orchestrator.taskir import GATES, Step

BUILT: Mapping[str, Gate] = {"schema": schema.check}
"""The gates that this version has."""


def asked_gates(step: Step, task_gates: Sequence[str]) -> tuple[str, ...]:
    """Return the gates that look at a step's outputs: its own if it names any, else the task's; none if it says so."""
    if not step.run_gates:
        return ()
    return tuple(step.gates if step.gates is not None else task_gates)


async def run_gates(
    asked: Collection[str], artifacts: Sequence[Artifact], context: GateContext, built: Mapping[str, Gate] = BUILT
) -> tuple[GateResult, ...]:
    """Return a result for each asked-for gate and artifact, of gates that are not built one result each.

    Gates come in order of cost. Behind the first one that fails the dearer ones are not run.
    """
    results: list[GateResult] = []
    failed = ""
    for name in [*(gate for gate in GATES if gate in asked), *sorted(set(asked) - set(GATES))]:
        if failed:
            results.append(GateResult(name, "not run", f"gate {failed} failed before it"))
        elif name not in built:
            results.append(GateResult(name, "not run", f"this version has no gate {name}"))
        else:
            results += [await _timed(built[name], artifact, context) for artifact in artifacts]
            failed = name if any(result.status == "failed" for result in results) else ""
    return tuple(results)


def failure_of(results: Sequence[GateResult]) -> Failure | None:
    """Return the failure that the results amount to, with the evidence of every artifact, or None."""
    failed = [result for result in results if result.status == "failed"]
    if not failed:
        return None
    kind = FAILURE_KINDS.get(failed[0].gate, FailureKind.LOGIC)
    return Failure(kind, f"gate {failed[0].gate} failed", "\n".join(result.evidence for result in failed))


async def _timed(gate: Gate, artifact: Artifact, context: GateContext) -> GateResult:
    started = perf_counter()
    result = await gate(artifact, context)
    return replace(result, seconds=perf_counter() - started)
