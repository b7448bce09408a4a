"""The gate typecheck: check the types of Python with mypy. Only this file knows its command line and reports."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from orchestrator.run.gates.contract import Artifact, Gate, GateContext, GateError
from orchestrator.run.gates.findings import Finding, format_findings
from orchestrator.run.gates.jobs import files_of, path_arguments, run_tool
from orchestrator.task.events import FailureKind, GateResult

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
# Comments that would turn the checker off; any white space counts, not only blanks.
_DIRECTIVE = re.compile(r"#(?=\s*(?:mypy\s*:|type\s*:\s*ignore))")
_UNCHECKED = re.compile(rb"\bno_type_check\w*")


class Typecheck(Gate):
    """Fails if mypy finds contradictory types in the outputs. Unannotated code is checked too.

    Errors in files that the step has only read do not count.
    """

    name = "typecheck"
    fails_as = FailureKind.CODE

    def __init__(self) -> None:
        self._cache: Mapping[str, bytes] = {}

    async def check(self, artifacts: Sequence[Artifact], context: GateContext) -> GateResult:
        code = files_of(context.select(artifacts, "python"))
        if unchecked := [finding for name, data in code.items() for finding in _unchecked(name, data)]:
            return self.failed(format_findings(unchecked, code))
        read = {name: data for name, data in context.reads.items() if name.endswith(".py") and name not in code}
        files = {name: without_directives(data) for name, data in {**read, **code}.items()} | dict(self._cache)
        argv = ("python", "-I", "-m", "mypy", *OPTIONS, "--", *path_arguments(code))
        # Most of mypy's time goes into types of the standard library: with this cache a check takes a fifth of the
        # time.
        keep = () if self._cache else (f"{CACHE}/*/*",)
        outcome = await run_tool(context.run, argv, files, (0, FOUND, UNREADABLE), keep)
        if outcome.exit_code != UNREADABLE:
            self._cache = self._cache or outcome.files
        findings = _findings(outcome.stdout)
        if outcome.exit_code and not findings:
            raise GateError(f"mypy did not work: exit code {outcome.exit_code} without an error", final=True)
        return self.failed(format_findings(findings, {**read, **code})) if outcome.exit_code else self.passed()


def without_directives(source: bytes) -> bytes:
    """Return the source with comments that turn the checker off made plain comments."""
    return _DIRECTIVE.sub("# -", source.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _unchecked(name: str, source: bytes) -> Iterator[Finding]:
    # Decorators such as no_type_check turn the checker off.
    for match in _UNCHECKED.finditer(source):
        line = source.count(b"\n", 0, match.start()) + 1
        yield Finding(name, line, "", f"{match[0].decode()} turns the check off; accepted: types that fit, or none")


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
