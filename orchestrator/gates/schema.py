"""Pass an artifact that matches the step's output schema, or that is JSON where its name says so."""

from orchestrator.events import GateResult
from orchestrator.gates.contract import Artifact, GateContext, is_json
from orchestrator.gates.json_schema import BadSchema, OutputSchema, SchemaMismatch


async def check(artifact: Artifact, context: GateContext) -> GateResult:
    """Return how the artifact fares. One that is not meant to be JSON cannot be judged: "not run"."""
    if not is_json(context.step, artifact.name):
        return GateResult("schema", "not run", f"{artifact.name}: neither output_schema nor a name that ends in .json")
    try:
        OutputSchema(context.step.output_schema).read(artifact.data.decode())
    except UnicodeDecodeError as error:
        return GateResult("schema", "failed", f"{artifact.name}: not UTF-8 at byte {error.start}")
    except SchemaMismatch as error:
        return GateResult("schema", "failed", f"{artifact.name}: {error.evidence}")
    except BadSchema as error:
        return GateResult("schema", "failed", f"{artifact.name}: {error}")
    return GateResult("schema", "passed")
