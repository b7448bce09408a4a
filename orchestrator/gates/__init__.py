"""What looks at an artifact before anyone relies on it. A gate that is not built says so; it never passes anything."""

from orchestrator.gates.contract import FAILURE_KINDS, Artifact, Gate, GateContext
from orchestrator.gates.json_schema import BadSchema, OutputSchema, SchemaMismatch
from orchestrator.gates.pipeline import BUILT, failure_of, run_gates

__all__ = [
    "BUILT",
    "FAILURE_KINDS",
    "Artifact",
    "BadSchema",
    "Gate",
    "GateContext",
    "OutputSchema",
    "SchemaMismatch",
    "failure_of",
    "run_gates",
]
