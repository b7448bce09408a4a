"""What looks at what a step made before anyone relies on it.

    contract     Gate: `check(artifacts, context) -> GateResult`; what it is given
    pipeline     which gates look, in which order, and what their results amount to
    suites       which tests go with a step
    jobs         runs tools and code as jobs of the sandbox, a few at once
    findings     what tools found, shortened to what the next attempt can learn from

One file a gate. Another one is added as a file of its own and a line in `pipeline`.
"""

from orchestrator.gates.contract import (
    Artifact,
    Gate,
    GateContext,
    GateError,
    GateSkipped,
    Judge,
    JudgeAnswer,
    Repaired,
    RunJob,
    Scope,
    as_looked_at,
    file_name,
    is_json,
    no_judge,
    no_sandbox,
)
from orchestrator.gates.jobs import JobRunner, max_concurrent_jobs
from orchestrator.gates.json_schema import BadSchema, OutputSchema, SchemaMismatch
from orchestrator.gates.pipeline import (
    BUILTIN_GATES,
    PipelineResult,
    PlannedGate,
    default_gates,
    gates_for_step,
    planned_gates,
    requested_gates,
    run_gates,
    scope_of,
)
from orchestrator.gates.suites import unseen_tests

__all__ = [
    "BUILTIN_GATES",
    "Artifact",
    "BadSchema",
    "Gate",
    "GateContext",
    "GateError",
    "GateSkipped",
    "JobRunner",
    "Judge",
    "JudgeAnswer",
    "OutputSchema",
    "PipelineResult",
    "PlannedGate",
    "Repaired",
    "RunJob",
    "SchemaMismatch",
    "Scope",
    "as_looked_at",
    "default_gates",
    "file_name",
    "gates_for_step",
    "is_json",
    "max_concurrent_jobs",
    "no_judge",
    "no_sandbox",
    "planned_gates",
    "requested_gates",
    "run_gates",
    "scope_of",
    "unseen_tests",
]
