"""Gates: checks on a step's outputs before another step reads them.

    contract  Gate: `check(artifacts, context) -> GateResult`, and its inputs
    table     all gates: their order, their tools, and where they are a default
    pipeline  which gates run on a step, in which order, and which failure follows
    jobs      runs tools and code as jobs of the sandbox
    turns     which job runs next: the one with the least slack
    shares    processor time of running jobs next to engines
    findings  formats findings for the next attempt's prompt
    ruff      ruff's command line and reports, for format, lint and security

Each gate has a file of its name; unit and integration share `tests`. A new gate is a new file and a row in `table`.
"""

from orchestrator.run.gates.contract import (
    Artifact,
    Gate,
    GateContext,
    GateError,
    GateSkipped,
    Judge,
    JudgeAnswer,
    Repaired,
    RunJob,
    RunnerFor,
    Scope,
    as_first_child,
    file_name,
    is_json,
    no_judge,
    no_runner,
    no_sandbox,
)
from orchestrator.run.gates.jobs import JobClock, JobRunner
from orchestrator.run.gates.judge import JUDGE
from orchestrator.run.gates.pipeline import (
    PipelineResult,
    PlannedGate,
    default_gates,
    gates_for_step,
    planned_gates,
    requested_gates,
    run_gates,
    scope_of,
)
from orchestrator.run.gates.shares import JobShares
from orchestrator.run.gates.table import BUILTIN_GATES, GATES
from orchestrator.run.gates.tests import unseen_tests
from orchestrator.task.taskir.validation import BadSchema, OutputSchema, SchemaMismatch

__all__ = [
    "BUILTIN_GATES",
    "GATES",
    "JUDGE",
    "Artifact",
    "BadSchema",
    "Gate",
    "GateContext",
    "GateError",
    "GateSkipped",
    "JobClock",
    "JobRunner",
    "JobShares",
    "Judge",
    "JudgeAnswer",
    "OutputSchema",
    "PipelineResult",
    "PlannedGate",
    "Repaired",
    "RunJob",
    "RunnerFor",
    "SchemaMismatch",
    "Scope",
    "as_first_child",
    "default_gates",
    "file_name",
    "gates_for_step",
    "is_json",
    "no_judge",
    "no_runner",
    "no_sandbox",
    "planned_gates",
    "requested_gates",
    "run_gates",
    "scope_of",
    "unseen_tests",
]
