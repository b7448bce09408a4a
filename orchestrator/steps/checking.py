"""Send what an attempt made through the gates that its step asks for."""

import re
from collections.abc import Mapping

from orchestrator.events import GateResult
from orchestrator.gates import Artifact, GateContext, Scope, file_name, run_gates
from orchestrator.steps.attempt import Attempt, Models
from orchestrator.steps.bounds import bounded
from orchestrator.steps.errors import AttemptError
from orchestrator.steps.judging import judge_of
from orchestrator.taskir.fields import ARTIFACT

_FILE = re.compile(ARTIFACT)
"""Names that may be those of files: labels of inputs can be any text."""


async def checked(
    attempt: Attempt, outputs: Mapping[str, bytes], models: Models
) -> tuple[Mapping[str, bytes], tuple[GateResult, ...]]:
    """Return the outputs, mended where a gate may do that, and what the gates said. Raises `AttemptError`.

    Gates have limits of their own: they step back behind engines that decode, which is no fault of the step's model.
    """
    artifacts = [Artifact(name, data) for name, data in outputs.items()]
    async with bounded(None):
        found = await run_gates(attempt.gates, artifacts, gate_context(attempt, models))
    if found.failure:
        raise AttemptError(found.failure, found.results)
    return {artifact.name: artifact.data for artifact in found.artifacts}, found.results


def gate_context(attempt: Attempt, models: Models) -> GateContext:
    """Return what the gates may use."""
    checks = attempt.checks
    return GateContext(
        Scope(attempt.step, tuple(test.name for test in checks.tests), checks.commands),
        reads={file_name(one.name): one.text.encode() for one in attempt.inputs if _FILE.fullmatch(one.name)},
        tests={one.name: one.text.encode() for one in checks.tests},
        run=checks.run,
        judge=judge_of(checks.judge, models, attempt.slack),
    )
