"""The gate judge: the judge role, a generative reward model, gives each output a critique, a score and a verdict."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from orchestrator.run.gates.contract import Artifact, Gate, GateContext, GateError
from orchestrator.run.gates.planned import JUDGE
from orchestrator.task.events import FailureKind, GateResult
from orchestrator.task.taskir.validation import OutputSchema, SchemaMismatch

ACTION = "Judge the answer."
# The critique comes first, so that the verdict follows from it.
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "critique": {"type": "string", "maxLength": 600},
        "score": {"type": "integer", "minimum": 0, "maximum": 9},
        "verdict": {"enum": ["pass", "fail"]},
    },
    "required": ["critique", "score", "verdict"],
    "additionalProperties": False,
}
_FORM = OutputSchema(SCHEMA)


class JudgeGate(Gate):
    """Fails if the judge fails an output, with its critique as evidence. The result has the lowest score."""

    name = JUDGE
    fails_as = FailureKind.LOGIC
    sequential = True

    async def check(self, artifacts: Sequence[Artifact], context: GateContext) -> GateResult:
        lowest: int | None = None
        tokens, work = 0, 0.0
        for artifact in artifacts:
            opinion = await context.judge(_read_by_judge(artifact, context), ACTION, SCHEMA)
            verdict, tokens, work = _verdict(opinion.text), tokens + opinion.tokens, work + opinion.work_seconds
            lowest = min(verdict["score"], verdict["score"] if lowest is None else lowest)
            if verdict["verdict"] != "pass":
                of_which = f"{artifact.name}: " if len(artifacts) > 1 else ""
                return replace(
                    self.failed(f"{of_which}{verdict['critique']}"), score=lowest, tokens=tokens, work_seconds=work
                )
        return replace(self.passed(), score=lowest, tokens=tokens, work_seconds=work)


def _read_by_judge(artifact: Artifact, context: GateContext) -> Sequence[tuple[str, str]]:
    # What the step read comes first, so that the prompts of sibling steps share a prefix.
    read = [(name, data.decode("utf-8", "replace")) for name, data in context.reads.items()]
    return [*read, ("task", context.step.action), ("answer", artifact.data.decode("utf-8", "replace"))]


def _verdict(answer: str) -> dict[str, Any]:
    try:
        verdict = _FORM.read(answer)
    except SchemaMismatch as error:
        raise GateError(f"the judge gave no verdict: {error.evidence}") from error
    assert isinstance(verdict, dict), json.dumps(SCHEMA)
    return verdict
