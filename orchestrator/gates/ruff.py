"""Check and format Python with ruff. The one file that knows ruff's command line and reports.

Nothing that a model wrote configures it: no file of settings is read, and `# noqa` counts for nothing.
"""

import json
from collections.abc import Mapping, Sequence

from orchestrator.gates.contract import GateError, RunJob
from orchestrator.gates.findings import Finding
from orchestrator.gates.jobs import paths, run_tool

LINE_LENGTH = 120
FOUND, UNREADABLE = 1, 2
SYNTAX, SYNTAX_CODE = "invalid-syntax", "SyntaxError:"

_OURS = ("--isolated", "--no-cache", "--target-version", "py311")


async def check(files: Mapping[str, bytes], select: Sequence[str], ignore: Sequence[str], run: RunJob) -> list[Finding]:
    """Return what the selected rules find in the files, syntax errors included. Raises `GateError`."""
    rules = ("--select", ",".join(select), *(("--ignore", ",".join(ignore)) if ignore else ()))
    argv = ("ruff", "check", *_OURS, "--ignore-noqa", "--output-format", "json", *rules, "--", *paths(files))
    outcome = await run_tool(run, argv, files, (0, FOUND))
    try:
        return _without_echoes([_finding(row, files) for row in json.loads(outcome.stdout)])
    except (ValueError, KeyError, TypeError) as error:
        raise GateError(f"ruff gave a report that cannot be read: {error}", final=True) from error


async def reformat(files: Mapping[str, bytes], run: RunJob) -> dict[str, bytes] | None:
    """Return the files as the formatter writes them, or None if one of them is no Python. Raises `GateError`."""
    argv = ("ruff", "format", *_OURS, "--line-length", str(LINE_LENGTH), "--", *paths(files))
    outcome = await run_tool(run, argv, files, (0, UNREADABLE), keep=tuple(files))
    if outcome.exit_code == UNREADABLE:
        return None
    if missing := files.keys() - outcome.files.keys():
        raise GateError(f"ruff format lost {', '.join(sorted(missing))}", final=True)
    return {name: outcome.files[name] for name in files}


def _without_echoes(findings: Sequence[Finding]) -> list[Finding]:
    """Leave out all syntax errors of a file but the first: the others come of it."""
    first = {finding.file: finding for finding in reversed(findings) if finding.code == SYNTAX_CODE}
    return [finding for finding in findings if finding.code != SYNTAX_CODE or finding is first[finding.file]]


def _finding(row: Mapping[str, object], files: Mapping[str, bytes]) -> Finding:
    location = row["location"]
    assert isinstance(location, dict), "ruff tells where"
    name = str(row["filename"])
    # It tells absolute paths; the longest of our names that ends one is the file.
    file = max((given for given in files if name.endswith(f"/{given}")), key=len, default=name)
    code = str(row["code"] or SYNTAX)
    return Finding(file, int(location["row"]), SYNTAX_CODE if code == SYNTAX else code, str(row["message"]))
