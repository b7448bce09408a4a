"""The gate shellcheck: check shell scripts with shellcheck. Only this file knows its command line and reports."""

import json
import re
from collections.abc import Mapping, Sequence

from orchestrator.run.gates.contract import Artifact, Gate, GateContext, GateError
from orchestrator.run.gates.findings import Finding, format_findings
from orchestrator.run.gates.jobs import files_of, path_arguments, run_tool
from orchestrator.task.events import FailureKind, GateResult

# "The script must say which shell it is for": off, as an output need not be an executable file.
ANY_SHELL = "SC2148"

FOUND = 1
_DIRECTIVE = re.compile(rb"#(?=[ \t]*shellcheck\b)")


class Shellcheck(Gate):
    """Fails for errors and warnings, but not for hints on style."""

    name = "shellcheck"
    fails_as = FailureKind.CODE

    async def check(self, artifacts: Sequence[Artifact], context: GateContext) -> GateResult:
        files = files_of(context.select(artifacts, "shell"))
        options = ("--norc", "--format=json1", "--severity=warning", f"--exclude={ANY_SHELL}")
        stripped = {name: without_directives(data) for name, data in files.items()}
        outcome = await run_tool(
            context.run, ("shellcheck", *options, "--", *path_arguments(files)), stripped, (0, FOUND)
        )
        findings = _findings(outcome.stdout)
        return self.failed(format_findings(findings, files)) if findings else self.passed()


def without_directives(script: bytes) -> bytes:
    """Return the script with each `# shellcheck disable=…` made a plain comment."""
    return _DIRECTIVE.sub(b"# -", script)


def _findings(report: bytes) -> list[Finding]:
    try:
        rows: list[Mapping[str, object]] = json.loads(report)["comments"]
        return [
            Finding(str(row["file"]).removeprefix("./"), int(str(row["line"])), f"SC{row['code']}", str(row["message"]))
            for row in rows
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise GateError(f"shellcheck gave a report that cannot be read: {error}", final=True) from error
