"""Look for mistakes in Python, such as names that are not defined. Matters of taste are left to the formatter."""

from collections.abc import Sequence

from orchestrator.events import FailureKind, GateResult
from orchestrator.gates import ruff
from orchestrator.gates.contract import Artifact, Gate, GateContext, Scope
from orchestrator.gates.findings import format_findings
from orchestrator.gates.jobs import files_of

RULES = ("E9", "F", "B", "PLE")


class Lint(Gate):
    """Fails for what pyflakes, bugbear and the error rules of pylint find."""

    name = "lint"
    fails_as = FailureKind.CODE

    def skip_reason(self, scope: Scope) -> str:
        return "" if scope.outputs("python") else "no output is Python"

    async def check(self, artifacts: Sequence[Artifact], context: GateContext) -> GateResult:
        files = files_of(context.chosen(artifacts, "python"))
        findings = await ruff.check(files, RULES, (), context.run)
        return self.failed(format_findings(findings, files)) if findings else self.passed()
