"""The gate schema: check outputs that must be JSON, by an output schema or by their names."""

from collections.abc import Sequence

from orchestrator.run.gates.contract import Artifact, Gate, GateContext
from orchestrator.task.events import FailureKind, GateResult
from orchestrator.task.taskir.models import Step
from orchestrator.task.taskir.validation import BadSchema, OutputSchema, SchemaMismatch


class Schema(Gate):
    """Fails if an output is not JSON, or does not match the step's output schema."""

    name = "schema"
    fails_as = FailureKind.SCHEMA

    async def check(self, artifacts: Sequence[Artifact], context: GateContext) -> GateResult:
        evidence = [_mismatch(artifact, context.step) for artifact in context.select(artifacts, "json")]
        mismatches = "\n".join(filter(None, evidence))
        return self.failed(mismatches) if mismatches else self.passed()


def _mismatch(artifact: Artifact, step: Step) -> str:
    try:
        OutputSchema(step.output_schema).read(artifact.data.decode())
    except UnicodeDecodeError as error:
        return f"{artifact.name}: not UTF-8 at byte {error.start}"
    except SchemaMismatch as error:
        return f"{artifact.name}: {error.evidence}"
    except BadSchema as error:
        return f"{artifact.name}: {error}"
    return ""
