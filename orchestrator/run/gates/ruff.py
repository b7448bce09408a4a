"""Check and format Python with ruff. Only this file knows its command line and reports.

A model's files cannot configure ruff: no settings are read, and `# noqa` has no effect.
"""

import json
from collections.abc import Mapping, Sequence

from orchestrator.run.gates.contract import GateError, RunJob
from orchestrator.run.gates.findings import Finding
from orchestrator.run.gates.jobs import path_arguments, run_tool

LINE_LENGTH = 120
FOUND, UNREADABLE = 1, 2
SYNTAX, SYNTAX_CODE = "invalid-syntax", "SyntaxError:"

_OURS = ("--isolated", "--no-cache", "--target-version", "py311")


async def check(files: Mapping[str, bytes], select: Sequence[str], ignore: Sequence[str], run: RunJob) -> list[Finding]:
    """Return syntax errors and the findings of the rules `select` without `ignore`. Raises GateError."""
    rules = ("--select", ",".join(select), *(("--ignore", ",".join(ignore)) if ignore else ()))
    argv = ("ruff", "check", *_OURS, "--ignore-noqa", "--output-format", "json", *rules, "--", *path_arguments(files))
    outcome = await run_tool(run, argv, files, (0, FOUND))
    try:
        return _without_followups([_finding(row, files) for row in json.loads(outcome.stdout)])
    except (ValueError, KeyError, TypeError) as error:
        raise GateError(f"ruff gave a report that cannot be read: {error}", final=True) from error


async def reformat(files: Mapping[str, bytes], run: RunJob) -> dict[str, bytes] | None:
    """Return the formatted files, or None if one of them is not valid Python. Raises GateError."""
    argv = ("ruff", "format", *_OURS, "--line-length", str(LINE_LENGTH), "--", *path_arguments(files))
    outcome = await run_tool(run, argv, files, (0, UNREADABLE), keep=tuple(files))
    if outcome.exit_code == UNREADABLE:
        return None
    if missing := files.keys() - outcome.files.keys():
        raise GateError(f"ruff format lost {', '.join(sorted(missing))}", final=True)
    return {name: outcome.files[name] for name in files}


def _without_followups(findings: Sequence[Finding]) -> list[Finding]:
    # The first syntax error of a file causes the others.
    first = {finding.file: finding for finding in reversed(findings) if finding.code == SYNTAX_CODE}
    return [finding for finding in findings if finding.code != SYNTAX_CODE or finding is first[finding.file]]


def _finding(row: Mapping[str, object], files: Mapping[str, bytes]) -> Finding:
    location = row["location"]
    assert isinstance(location, dict), "ruff reports a location for each finding"
    name = str(row["filename"])
    # ruff reports absolute paths: the file is the longest of our names that the path ends with.
    file = max((known_name for known_name in files if name.endswith(f"/{known_name}")), key=len, default=name)
    code = str(row["code"] or SYNTAX)
    return Finding(file, int(location["row"]), SYNTAX_CODE if code == SYNTAX else code, str(row["message"]))
