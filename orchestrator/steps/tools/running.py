"""Run what models wrote: tests and shell commands, in the sandbox and nowhere else."""

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from orchestrator.events import Failure, FailureKind
from orchestrator.gates import GateError
from orchestrator.gates.tests import PYTEST, REPORT, SETTINGS, SETTINGS_TEXT, read_report
from orchestrator.sandbox import MIB, JobOutcome, SandboxJob, SandboxLimits
from orchestrator.steps.tools.contract import Tool, ToolContext, ToolError, ToolResult
from orchestrator.taskir.fields import ARTIFACT

MAX_SECONDS = 300
MEMORY = 256 * MIB
PROCESSES = 8
DISK = 32 * MIB
EVIDENCE = 4_000
"""How many characters of the output serve as evidence of a failure: its last ones, where tools sum up."""

_LIMITED = {"wall": FailureKind.TIMEOUT, "cpu": FailureKind.TIMEOUT}


async def _run_tests(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    """Run pytest as the gates do, so that no file of the step decides which tests run or whether they have passed."""
    outcome = await _outcome(context, PYTEST, arguments, {SETTINGS: SETTINGS_TEXT}, (REPORT,))
    failure = _failure(outcome) or _failed_tests(outcome)
    made = _result(outcome, failure)
    return replace(made, value={**made.value, "exit_code": outcome.exit_code or int(failure is not None)})


async def _shell(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    outcome = await _outcome(context, ("sh", "-c", arguments["command"]), arguments)
    return _result(outcome, _failure(outcome))


async def _outcome(
    context: ToolContext,
    argv: tuple[str, ...],
    arguments: Mapping[str, Any],
    ours: Mapping[str, bytes] = MappingProxyType({}),
    keep: tuple[str, ...] = (),
) -> JobOutcome:
    """Run a program on the files that the arguments name. `ours` are files that it gets beside them."""
    workspace = context.workspace
    names = arguments.get("files", [*workspace.inputs, *workspace.written])
    files = await asyncio.to_thread(lambda: {name: workspace.read(name).encode() for name in _paths(names)})
    seconds = arguments.get("seconds", 60)
    limits = SandboxLimits(wall=seconds, cpu=seconds, memory=MEMORY, processes=PROCESSES, disk=DISK)
    return await context.run(SandboxJob(argv=argv, files={**files, **ours}, limits=limits, keep=keep))


def _result(outcome: JobOutcome, failure: Failure | None) -> ToolResult:
    return ToolResult(_format_outcome(outcome), outcome.stdout.decode(errors="replace"), failure)


def _paths(names: Iterable[str]) -> list[str]:
    """Return the names; refuse those that a file cannot have, such as an input's label with a `..` in it."""
    for name in names:
        if not re.match(ARTIFACT, name):
            raise ToolError(f"{name!r} cannot be the name of a file here; accepted: relative names without '..'")
    return list(names)


def _format_outcome(outcome: JobOutcome) -> dict[str, Any]:
    found: dict[str, Any] = {
        "exit_code": outcome.exit_code,
        "stdout": outcome.stdout.decode(errors="replace"),
        "stderr": outcome.stderr.decode(errors="replace"),
    }
    return found | ({"limit": outcome.limit} if outcome.limit else {}) | ({"cut": True} if outcome.cut else {})


def _failure(outcome: JobOutcome) -> Failure | None:
    if outcome.exit_code == 0:
        return None
    output = (outcome.stdout + outcome.stderr).decode(errors="replace")[-EVIDENCE:]
    if outcome.limit:
        kind = _LIMITED.get(outcome.limit, FailureKind.RESOURCE)
        return Failure(kind, f"it ran into its limit: {outcome.limit}", output)
    how = f"exit code {outcome.exit_code}" if outcome.signal is None else f"signal {outcome.signal}"
    return Failure(FailureKind.CODE, f"it ended with {how}", output)


def _failed_tests(outcome: JobOutcome) -> Failure | None:
    """Return the failure of tests whose process ended with 0, if one failed. Raises `ToolError` without pytest."""
    try:
        report = read_report(outcome)
    except GateError as error:
        raise ToolError(str(error)) from error
    if report.passed and not report.failed:
        return None
    said = report.failed[0].message if report.failed else "no test has run"
    return Failure(FailureKind.CODE, said, said)


_COMMON: Mapping[str, Mapping[str, Any]] = {
    "files": {
        "type": "array",
        "maxItems": 1000,
        "items": {"type": "string", "minLength": 1, "maxLength": 200},
        "description": "what lies in its folder; without it, the step's inputs and what it has written",
    },
    "seconds": {"type": "integer", "minimum": 1, "maximum": MAX_SECONDS, "description": "it is stopped after; 60"},
}
RUN_TESTS = Tool("run_tests", "Run pytest on these files, in a sandbox.", _run_tests, _COMMON, sandboxed=True)
SHELL = Tool(
    "shell",
    "Run a shell command on these files, in a sandbox without a network.",
    _shell,
    {"command": {"type": "string", "minLength": 1, "maxLength": 10_000}, **_COMMON},
    ("command",),
    sandboxed=True,
)
