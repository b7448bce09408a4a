"""Run a step's gates on an attempt's artifacts, in the order of `planned.GATES`.

Cheap gates run concurrently; those that run the artifacts or ask a model run one after the other. The first failure in
that order counts: later gates are cancelled, and earlier ones run to their end.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pkgutil import resolve_name
from time import perf_counter
from typing import Final

from orchestrator.run.gates.contract import Artifact, Gate, GateContext, GateError, GateSkipped, Repaired
from orchestrator.run.gates.jobs import JobClock
from orchestrator.run.gates.planned import GATES, PlannedGate, planned_gates
from orchestrator.task.events import Failure, FailureKind, GateResult
from orchestrator.task.stages import checking

BUILTIN_GATES: Final[Mapping[str, Gate]] = {
    row.name: resolve_name(f"orchestrator.run.gates.{row.code}")() for row in GATES
}


@dataclass(frozen=True, slots=True)
class PipelineResult:
    artifacts: tuple[Artifact, ...]  # as gates may have repaired them
    results: tuple[GateResult, ...]  # one for each requested gate, in the order of the gates
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class _Verdict:
    result: GateResult
    artifacts: tuple[Artifact, ...] | None = None  # all of them, if the gate has repaired some
    final: bool = False  # every other attempt would fail in the same way


async def run_gates(
    requested: Collection[str],
    artifacts: Sequence[Artifact],
    context: GateContext,
    built: Mapping[str, Gate] = BUILTIN_GATES,
) -> PipelineResult:
    """Run the requested gates. A bad artifact or a missing tool raises nothing: a gate fails."""
    current, verdicts, begun = tuple(artifacts), dict[str, _Verdict](), perf_counter()
    plans = planned_gates(requested, context.scope, {name: gate.skip_reason for name, gate in built.items()})
    for group in _groups([built[plan.gate] for plan in plans if not plan.idle]):
        verdicts |= await _run_concurrently(group, current, context, begun)
        current = next((verdict.artifacts for verdict in verdicts.values() if verdict.artifacts is not None), current)
        if _first_failed(verdicts):
            break
    failed = _first_failed(verdicts)
    return PipelineResult(current, tuple(_results(plans, verdicts, failed)), _failure(failed) if failed else None)


def _groups(gates: Sequence[Gate]) -> Iterator[list[Gate]]:
    # Gates that run at the same time: first all that are not sequential, then each sequential one alone.
    if together := [gate for gate in gates if not gate.sequential]:
        yield together
    yield from ([gate] for gate in gates if gate.sequential)


async def _run_concurrently(
    gates: Sequence[Gate], artifacts: tuple[Artifact, ...], context: GateContext, begun: float
) -> dict[str, _Verdict]:
    # The verdicts of gates that were cancelled are missing.
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_run_gate(gate, artifacts, context, begun)) for gate in gates]
        for number, task in enumerate(tasks, start=1):
            task.add_done_callback(partial(_cancel_if_failed, tasks[number:]))
    return {gate.name: task.result() for gate, task in zip(gates, tasks, strict=True) if not task.cancelled()}


def _cancel_if_failed(later: Sequence[asyncio.Task[_Verdict]], task: asyncio.Task[_Verdict]) -> None:
    if not task.cancelled() and task.exception() is None and task.result().result.status == "failed":
        for gate_task in later:
            gate_task.cancel()


async def _run_gate(gate: Gate, artifacts: tuple[Artifact, ...], context: GateContext, begun: float) -> _Verdict:
    offset = perf_counter() - begun
    with checking(gate.name):
        verdict = await _verdict(gate, artifacts, context)
    return replace(verdict, result=replace(verdict.result, offset_seconds=offset))


async def _verdict(gate: Gate, artifacts: tuple[Artifact, ...], context: GateContext) -> _Verdict:
    clock = JobClock(context.run)
    try:
        outcome = await gate.check(artifacts, replace(context, run=clock.run))
    except GateError as error:
        return _Verdict(_timed(gate.failed(str(error), error.kind), clock), final=error.final)
    except GateSkipped as error:
        return _Verdict(GateResult(gate.name, "not run", str(error)))
    if isinstance(outcome, Repaired):
        return _Verdict(_timed(outcome.result, clock), outcome.artifacts)
    return _Verdict(_timed(outcome, clock))


def _timed(result: GateResult, clock: JobClock) -> GateResult:
    # A judge, which runs no job, has counted its work itself.
    seconds, work = clock.read()
    return replace(result, seconds=seconds, work_seconds=result.work_seconds if work is None else work)


def _first_failed(verdicts: Mapping[str, _Verdict]) -> _Verdict | None:
    return next((verdict for verdict in verdicts.values() if verdict.result.status == "failed"), None)


def _results(
    plans: Sequence[PlannedGate], verdicts: Mapping[str, _Verdict], failed: _Verdict | None
) -> Iterator[GateResult]:
    for plan in plans:
        if plan.gate in verdicts:
            yield verdicts[plan.gate].result
        elif plan.idle:
            yield GateResult(plan.gate, "not run", plan.idle)
        else:
            assert failed is not None, "a gate has no verdict only if another gate failed before it"
            yield GateResult(plan.gate, "not run", f"gate {failed.result.gate} failed before it")


def _failure(failed: _Verdict) -> Failure:
    # The model reads no evidence of a failure that is not its fault.
    result = failed.result
    kind = result.kind or FailureKind.LOGIC
    first = result.evidence.partition("\n")[0]
    evidence = "" if kind is FailureKind.INFRASTRUCTURE else result.evidence
    return Failure(kind, f"gate {result.gate} failed: {first}", evidence, final=failed.final)
