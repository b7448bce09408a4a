"""Check the types of Python with mypy. The one file that knows its command line and reports."""

import json
import re
from collections.abc import Mapping, Sequence

from orchestrator.events import FailureKind, GateResult
from orchestrator.gates.contract import Artifact, Gate, GateContext, GateError, Scope
from orchestrator.gates.findings import Finding, format_findings
from orchestrator.gates.jobs import files_of, paths, run_tool

CACHE = ".types"
OPTIONS = (
    "--config-file=",
    f"--cache-dir={CACHE}",
    "--sqlite-cache",
    "--no-error-summary",
    "--output=json",
    "--python-version=3.11",
    "--explicit-package-bases",
    "--ignore-missing-imports",
    "--follow-imports=silent",
    "--check-untyped-defs",
)
FOUND, UNREADABLE = 1, 2
_DIRECTIVE = re.compile(rb"#(?=[ \t]*(?:mypy[ \t]*:|type[ \t]*:[ \t]*ignore))")


class Typecheck(Gate):
    """Fails for what contradicts itself. Code without annotations is looked at too, and need not have any. What is
    wrong with files that the step has only read is not its fault.

    Most of the time goes into the types of the standard library. What mypy has worked out of them in the first check is
    kept in memory for all later ones, which then take a fifth of the time.
    """

    name = "typecheck"
    fails_as = FailureKind.CODE

    def __init__(self) -> None:
        self._cache: Mapping[str, bytes] = {}

    def skip_reason(self, scope: Scope) -> str:
        return "" if scope.outputs("python") else "no output is Python"

    async def check(self, artifacts: Sequence[Artifact], context: GateContext) -> GateResult:
        code = files_of(context.chosen(artifacts, "python"))
        read = {name: data for name, data in context.reads.items() if name.endswith(".py") and name not in code}
        files = {name: without_directives(data) for name, data in {**read, **code}.items()} | dict(self._cache)
        argv = ("python", "-I", "-m", "mypy", *OPTIONS, "--", *paths(code))
        keep = () if self._cache else (f"{CACHE}/*/*",)
        outcome = await run_tool(context.run, argv, files, (0, FOUND, UNREADABLE), keep)
        if outcome.exit_code != UNREADABLE:
            self._cache = self._cache or outcome.files
        findings = _findings(outcome.stdout)
        if outcome.exit_code and not findings:
            raise GateError(f"mypy did not work: exit code {outcome.exit_code} without an error", final=True)
        return self.failed(format_findings(findings, {**read, **code})) if outcome.exit_code else self.passed()


def without_directives(source: bytes) -> bytes:
    """Return the source with comments that would turn the checker off made ordinary ones."""
    return _DIRECTIVE.sub(b"# -", source)


def _findings(report: bytes) -> list[Finding]:
    try:
        rows: list[Mapping[str, object]] = [json.loads(line) for line in report.splitlines() if line.startswith(b"{")]
        return [
            Finding(str(row["file"]), max(0, int(str(row["line"]))), f"[{row['code']}]", str(row["message"]))
            for row in rows
            if row["severity"] == "error"
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise GateError(f"mypy gave a report that cannot be read: {error}", final=True) from error
