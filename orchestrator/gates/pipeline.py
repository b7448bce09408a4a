"""Send what an attempt made through the gates that its step asks for, in the fixed order of `GATES`.

Cheap gates look side by side, those that run the artifacts or ask a model one after the other. The first failure in the
order counts: what stands behind a gate that has failed is cancelled, what stands before it is heard.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

from orchestrator.events import Failure, FailureKind, GateResult
from orchestrator.gates.bench import Bench
from orchestrator.gates.build import Build
from orchestrator.gates.contract import (
    Artifact,
    Gate,
    GateContext,
    GateError,
    GateSkipped,
    Language,
    Repaired,
    Scope,
    as_looked_at,
    language,
)
from orchestrator.gates.format import Format
from orchestrator.gates.judge import JudgeGate
from orchestrator.gates.lint import Lint
from orchestrator.gates.schema import Schema
from orchestrator.gates.security import Security
from orchestrator.gates.shellcheck import Shellcheck
from orchestrator.gates.tests import Integration, Unit
from orchestrator.gates.typecheck import Typecheck
from orchestrator.taskir import GATES, Step, TaskIR

_ALL = (Schema, Shellcheck, Format, Lint, Build, Typecheck, Security, Unit, Integration, Bench, JudgeGate)

BUILTIN_GATES: Mapping[str, Gate] = {gate.name: gate() for gate in _ALL}
"""The gates that this version has."""


DEFAULT_GATES: Mapping[Language, tuple[str, ...]] = {
    "python": ("format", "lint", "build"),
    "shell": ("shellcheck",),
    "json": ("schema",),
    "text": (),
}
"""Gates that need nothing but an artifact, and refuse nothing that works: security refuses much that is wanted."""


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """What the pipeline returns for an attempt's artifacts."""

    artifacts: tuple[Artifact, ...]
    results: tuple[GateResult, ...]
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class PlannedGate:
    """A gate that a step requests, and whether it will check anything."""

    gate: str
    """The gate's name."""
    idle: str
    """Why the gate will not run on this step's outputs; empty if it will."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What one gate came to. `artifacts` are given where it has mended some."""

    result: GateResult
    artifacts: tuple[Artifact, ...] | None = None
    final: bool = False


def requested_gates(step: Step, task_gates: Sequence[str]) -> tuple[str, ...]:
    """Return the gates that look at a step's outputs: its own if it names any, else the task's; none if it says so."""
    if not step.run_gates:
        return ()
    return tuple(step.gates if step.gates is not None else task_gates)


def default_gates(step: Step) -> tuple[str, ...]:
    """Return the gates for a step whose author cannot say any: those that read what it writes, and ask for no more."""
    written = {language(step, name) for name in as_looked_at(step).outputs}
    return tuple(gate for gate in GATES if any(gate in DEFAULT_GATES[one] for one in written))


def planned_gates(
    asked: Collection[str], scope: Scope, built: Mapping[str, Gate] = BUILTIN_GATES
) -> tuple[PlannedGate, ...]:
    """Return what the gates that are asked for will do, in their order. The plan alone tells."""
    names = [*(gate for gate in GATES if gate in asked), *sorted(set(asked) - set(GATES))]
    unknown = "this version has no such gate"
    return tuple(PlannedGate(name, built[name].skip_reason(scope) if name in built else unknown) for name in names)


def gates_for_step(step: Step, task: TaskIR | None) -> tuple[PlannedGate, ...]:
    """Return what the gates that are asked for will do with a step's outputs. A plain request has no task."""
    return planned_gates(requested_gates(step, task.gates if task else ()), scope_of(step, task))


def scope_of(step: Step, task: TaskIR | None) -> Scope:
    """Return what is known of a step of a task before it runs."""
    looked_at = as_looked_at(step)
    return Scope(looked_at) if task is None else Scope(looked_at, task.labels, task.commands)


async def run_gates(
    asked: Collection[str],
    artifacts: Sequence[Artifact],
    context: GateContext,
    built: Mapping[str, Gate] = BUILTIN_GATES,
) -> PipelineResult:
    """Return what the gates make of the artifacts, with one result for each that was asked for."""
    now, looks = tuple(artifacts), dict[str, _Look]()
    plans = planned_gates(asked, context.scope, built)
    for group in _groups([built[plan.gate] for plan in plans if not plan.idle]):
        looks |= await _side_by_side(group, now, context)
        now = next((look.artifacts for look in looks.values() if look.artifacts is not None), now)
        if _first_failed(looks):
            break
    failed = _first_failed(looks)
    return PipelineResult(now, tuple(_results(plans, looks, failed)), _failure(failed) if failed else None)


def _groups(gates: Sequence[Gate]) -> Iterator[list[Gate]]:
    """Yield the gates in their order: first those that look side by side, then one at a time."""
    if together := [gate for gate in gates if not gate.sequential]:
        yield together
    yield from ([gate] for gate in gates if gate.sequential)


async def _side_by_side(
    gates: Sequence[Gate], artifacts: tuple[Artifact, ...], context: GateContext
) -> dict[str, _Look]:
    """Return the looks of those gates that came to one, in their order."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_look(gate, artifacts, context)) for gate in gates]
        for number, task in enumerate(tasks, start=1):
            task.add_done_callback(partial(_cancel_if_failed, tasks[number:]))
    return {gate.name: task.result() for gate, task in zip(gates, tasks, strict=True) if not task.cancelled()}


def _cancel_if_failed(behind: Sequence[asyncio.Task[_Look]], task: asyncio.Task[_Look]) -> None:
    if not task.cancelled() and task.exception() is None and task.result().result.status == "failed":
        for later in behind:
            later.cancel()


async def _look(gate: Gate, artifacts: tuple[Artifact, ...], context: GateContext) -> _Look:
    started = perf_counter()
    try:
        found = await gate.check(artifacts, context)
    except GateError as error:
        found = gate.failed(str(error), error.kind)
        return _Look(replace(found, seconds=perf_counter() - started), final=error.final)
    except GateSkipped as error:
        return _Look(GateResult(gate.name, "not run", str(error)))
    seconds = perf_counter() - started
    if isinstance(found, Repaired):
        return _Look(replace(found.result, seconds=seconds), found.artifacts)
    return _Look(replace(found, seconds=seconds))


def _first_failed(looks: Mapping[str, _Look]) -> _Look | None:
    return next((look for look in looks.values() if look.result.status == "failed"), None)


def _results(plans: Sequence[PlannedGate], looks: Mapping[str, _Look], failed: _Look | None) -> Iterator[GateResult]:
    for plan in plans:
        if plan.gate in looks:
            yield looks[plan.gate].result
        elif plan.idle:
            yield GateResult(plan.gate, "not run", plan.idle)
        else:
            assert failed is not None, "a gate is only left out where another has failed"
            yield GateResult(plan.gate, "not run", f"gate {failed.result.gate} failed before it")


def _failure(failed: _Look) -> Failure:
    """Return the failure that a gate's result amounts to. What is not the model's fault is no evidence for it."""
    result = failed.result
    kind = result.kind or FailureKind.LOGIC
    first = result.evidence.partition("\n")[0]
    evidence = "" if kind is FailureKind.INFRASTRUCTURE else result.evidence
    return Failure(kind, f"gate {result.gate} failed: {first}", evidence, final=failed.final)
