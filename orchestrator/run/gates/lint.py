"""The gate lint: find mistakes in Python with ruff, such as undefined names. Style is left to the gate format."""

from collections.abc import Sequence
from typing import Final

from orchestrator.run.gates import ruff
from orchestrator.run.gates.contract import Artifact, Gate, GateContext
from orchestrator.run.gates.findings import format_findings
from orchestrator.run.gates.jobs import files_of
from orchestrator.task.events import FailureKind, GateResult

RULES: Final = ("E9", "F", "PLE", "B002", "B005", "B015", "B016", "B020", "B023", "B029")
# A correct program may contain these, such as an unused import. Refusing it would use up retries that the tests need.
IGNORED: Final = ("F401", "F403", "F405", "F541", "F841")


class Lint(Gate):
    """Fails on findings of pyflakes, the error rules of pylint and some rules of bugbear."""

    name = "lint"
    fails_as = FailureKind.CODE

    async def check(self, artifacts: Sequence[Artifact], context: GateContext) -> GateResult:
        files = files_of(context.select(artifacts, "python"))
        findings = await ruff.check(files, RULES, IGNORED, context.run)
        return self.failed(format_findings(findings, files)) if findings else self.passed()
