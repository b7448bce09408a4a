"""The gate lint: look for mistakes in Python with ruff, such as undefined names. Style is left to the gate format."""

from collections.abc import Sequence

from orchestrator.events import FailureKind, GateResult
from orchestrator.gates import ruff
from orchestrator.gates.contract import Artifact, Gate, GateContext, Scope
from orchestrator.gates.findings import format_findings
from orchestrator.gates.jobs import files_of

RULES = ("E9", "F", "B", "PLE")


class Lint(Gate):
    """Fails if the rules of pyflakes or bugbear, or the error rules of pylint, find something."""

    name = "lint"
    fails_as = FailureKind.CODE

    def skip_reason(self, scope: Scope) -> str:
        return "" if scope.outputs("python") else "no output is Python"

    async def check(self, artifacts: Sequence[Artifact], context: GateContext) -> GateResult:
        files = files_of(context.select(artifacts, "python"))
        findings = await ruff.check(files, RULES, (), context.run)
        return self.failed(format_findings(findings, files)) if findings else self.passed()
