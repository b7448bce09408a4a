"""Steps and artifacts for the tests of gates."""

from collections.abc import Mapping
from typing import Any

from orchestrator.run.gates.contract import Artifact, GateContext, RunJob
from orchestrator.run.gates.pipeline import PipelineResult, run_gates
from orchestrator.run.gates.planned import Scope
from orchestrator.task.taskir.models import Commands, Step


def step(*outputs: str, inputs: tuple[str, ...] = (), **more: Any) -> Step:
    """Return a step that writes these outputs."""
    return Step(id="S1", actor="coder", action="Write it.", outputs=outputs, inputs=inputs, **more)


async def check(
    gates: tuple[str, ...],
    run: RunJob,
    made: Mapping[str, str],
    *,
    reads: Mapping[str, str] | None = None,
    tests: Mapping[str, str] | None = None,
    commands: Commands | None = None,
) -> PipelineResult:
    """Send what a step `made` through the gates, in the sandbox that `run` runs jobs in."""
    reads, tests = reads or {}, tests or {}
    scope = Scope(step(*made, inputs=tuple(reads)), tuple(tests), commands or Commands())
    context = GateContext(scope, reads=_encoded(reads), tests=_encoded(tests), run=run)
    return await run_gates(gates, [Artifact(name, text.encode()) for name, text in made.items()], context)


def _encoded(texts: Mapping[str, str]) -> dict[str, bytes]:
    return {name: text.encode() for name, text in texts.items()}
