"""Run what models wrote, tests and shell commands, in the sandbox and nowhere else."""

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from orchestrator.run.gates.contract import GateError
from orchestrator.run.gates.planned import module_under_test
from orchestrator.run.gates.tests import PytestRun, format_report
from orchestrator.run.sandbox.contract import (
    MIB,
    JobOutcome,
    SandboxJob,
    SandboxLimits,
)
from orchestrator.run.steps.tools.contract import Tool, ToolContext, ToolError, ToolResult
from orchestrator.task.events import Failure, FailureKind
from orchestrator.task.taskir.fields import ARTIFACT

MAX_SECONDS = 300
MEMORY = 256 * MIB
PROCESSES = 8
DISK = 32 * MIB
# Characters of the output that show a failure: its last ones, where tools sum up.
EVIDENCE = 4_000

_LIMITED = {"wall": FailureKind.TIMEOUT, "cpu": FailureKind.TIMEOUT}


async def _run_tests(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    # Pytest runs as in the gates, so that no file of the step decides which tests run or whether they pass.
    files = await _files(context, arguments)
    tests = [name for name in files if module_under_test(name) is not None]
    written = [name for name in context.workspace.written if name in files]
    run = PytestRun.plan(files, tests, [name for name in written if name not in tests], [*set(written) & set(tests)])
    outcome = await _outcome(context, SandboxJob(argv=run.argv, files=run.files, stdin=run.stdin), arguments)
    try:
        report = run.read(outcome)
    except GateError as error:
        raise ToolError(str(error)) from error
    summary = format_report(report, files) or "no test has run"
    passed = report.passed and not report.failed
    failure = _failure(outcome) or (None if passed else Failure(FailureKind.CODE, summary.partition("\n")[0], summary))
    return _result(replace(outcome, stdout=summary.encode(), exit_code=outcome.exit_code or int(not passed)), failure)


async def _shell(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    job = SandboxJob(argv=("sh", "-c", arguments["command"]), files=await _files(context, arguments))
    outcome = await _outcome(context, job, arguments)
    return _result(outcome, _failure(outcome))


async def _files(context: ToolContext, arguments: Mapping[str, Any]) -> dict[str, bytes]:
    workspace = context.workspace
    names = arguments.get("files", [*workspace.inputs, *workspace.written])
    return await asyncio.to_thread(lambda: {name: workspace.read(name).encode() for name in _paths(names)})


async def _outcome(context: ToolContext, job: SandboxJob, arguments: Mapping[str, Any]) -> JobOutcome:
    seconds = arguments.get("seconds", 60)
    limits = SandboxLimits(wall=seconds, cpu=seconds, memory=MEMORY, processes=PROCESSES, disk=DISK)
    return await context.run(replace(job, limits=limits))


def _result(outcome: JobOutcome, failure: Failure | None) -> ToolResult:
    return ToolResult(_format_outcome(outcome), outcome.stdout.decode(errors="replace"), failure)


def _paths(names: Iterable[str]) -> list[str]:
    # An input's label may have a `..` in it, which no file can have.
    for name in names:
        if not re.match(ARTIFACT, name):
            raise ToolError(f"{name!r} cannot be the name of a file here; accepted: relative names without '..'")
    return list(names)


def _format_outcome(outcome: JobOutcome) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "exit_code": outcome.exit_code,
        "stdout": outcome.stdout.decode(errors="replace"),
        "stderr": outcome.stderr.decode(errors="replace"),
    }
    return fields | ({"limit": outcome.limit} if outcome.limit else {}) | ({"cut": True} if outcome.cut else {})


def _failure(outcome: JobOutcome) -> Failure | None:
    if outcome.exit_code == 0:
        return None
    output = (outcome.stdout + outcome.stderr).decode(errors="replace")[-EVIDENCE:]
    if outcome.limit:
        kind = _LIMITED.get(outcome.limit, FailureKind.RESOURCE)
        return Failure(kind, f"it ran into its limit: {outcome.limit}", output)
    how = f"exit code {outcome.exit_code}" if outcome.signal is None else f"signal {outcome.signal}"
    return Failure(FailureKind.CODE, f"it ended with {how}", output)


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
