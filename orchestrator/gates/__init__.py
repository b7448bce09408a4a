"""What looks at an artifact before anyone relies on it. A gate that is not built says so; it never passes anything."""

from orchestrator.gates.contract import FAILURE_KINDS, Artifact, Gate, GateContext, is_json
from orchestrator.gates.json_schema import BadSchema, OutputSchema, SchemaMismatch
from orchestrator.gates.pipeline import BUILT, asked_gates, failure_of, run_gates

__all__ = [
    "BUILT",
    "FAILURE_KINDS",
    "Artifact",
    "BadSchema",
    "Gate",
    "GateContext",
    "OutputSchema",
    "SchemaMismatch",
    "asked_gates",
    "failure_of",
    "is_json",
    "run_gates",
]
