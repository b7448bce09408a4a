"""Let the judge role look at what a step made: a generative reward model that gives verdict, score and critique."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from orchestrator.events import FailureKind, GateResult
from orchestrator.gates.contract import Artifact, Gate, GateContext, GateError, Scope
from orchestrator.gates.json_schema import OutputSchema, SchemaMismatch

ACTION = "Judge the answer."
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
"""What the judge is asked for: it says what it finds before it concludes."""
_FORM = OutputSchema(SCHEMA)


class JudgeGate(Gate):
    """Fails for the first output that the judge does not let pass, with its critique. The lowest score counts."""

    name = "judge"
    fails_as = FailureKind.LOGIC
    sequential = True

    def skip_reason(self, scope: Scope) -> str:
        return "" if scope.step.outputs else "the step writes nothing"

    async def check(self, artifacts: Sequence[Artifact], context: GateContext) -> GateResult:
        lowest: int | None = None
        tokens = 0
        for artifact in artifacts:
            opinion = await context.judge(_read_by_judge(artifact, context), ACTION, SCHEMA)
            verdict, tokens = _verdict(opinion.text), tokens + opinion.tokens
            lowest = min(verdict["score"], verdict["score"] if lowest is None else lowest)
            if verdict["verdict"] != "pass":
                of_which = f"{artifact.name}: " if len(artifacts) > 1 else ""
                return replace(self.failed(f"{of_which}{verdict['critique']}"), score=lowest, tokens=tokens)
        return replace(self.passed(), score=lowest, tokens=tokens)


def _read_by_judge(artifact: Artifact, context: GateContext) -> Sequence[tuple[str, str]]:
    """Return what the judge reads: what the step read, its task, and the answer. So siblings share their beginning."""
    read = [(name, data.decode("utf-8", "replace")) for name, data in context.reads.items()]
    return [*read, ("task", context.step.action), ("answer", artifact.data.decode("utf-8", "replace"))]


def _verdict(answer: str) -> dict[str, Any]:
    try:
        verdict = _FORM.read(answer)
    except SchemaMismatch as error:
        raise GateError(f"the judge gave no verdict: {error.evidence}") from error
    assert isinstance(verdict, dict), json.dumps(SCHEMA)
    return verdict
