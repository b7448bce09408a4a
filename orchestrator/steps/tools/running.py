"""Run what models wrote: tests and shell commands, in the sandbox and nowhere else."""

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.events import Failure, FailureKind
from orchestrator.sandbox import MIB, Job, Limits, Outcome
from orchestrator.steps.tools.contract import Tool, ToolContext, ToolError, ToolResult
from orchestrator.taskir.fields import ARTIFACT

MAX_SECONDS = 300
MEMORY = 256 * MIB
PROCESSES = 8
DISK = 32 * MIB
EVIDENCE = 4_000
"""Characters of the output that tell why something failed: its end, where tools sum up."""

_PYTEST = ("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", "--disable-plugin-autoload")
_LIMITED = {"wall": FailureKind.TIMEOUT, "cpu": FailureKind.TIMEOUT}


async def _run_tests(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    return await _ran(context, _PYTEST, arguments)


async def _shell(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    return await _ran(context, ("sh", "-c", arguments["command"]), arguments)


async def _ran(context: ToolContext, argv: tuple[str, ...], arguments: Mapping[str, Any]) -> ToolResult:
    """Run a program with the texts that it is to have, and return what it said."""
    workspace = context.workspace
    names = arguments.get("files", [*workspace.inputs, *workspace.written])
    files = await asyncio.to_thread(lambda: {name: workspace.read(name).encode() for name in _paths(names)})
    seconds = arguments.get("seconds", 60)
    limits = Limits(wall=seconds, cpu=seconds, memory=MEMORY, processes=PROCESSES, disk=DISK)
    outcome = await context.run(Job(argv=argv, files=files, limits=limits))
    return ToolResult(_told(outcome), outcome.stdout.decode(errors="replace"), _failure(outcome))


def _paths(names: Iterable[str]) -> list[str]:
    """Return the names; refuse those that a file cannot have, such as an input's label with a `..` in it."""
    for name in names:
        if not re.match(ARTIFACT, name):
            raise ToolError(f"{name!r} cannot be the name of a file here; accepted: relative names without '..'")
    return list(names)


def _told(outcome: Outcome) -> dict[str, Any]:
    told: dict[str, Any] = {
        "exit_code": outcome.exit_code,
        "stdout": outcome.stdout.decode(errors="replace"),
        "stderr": outcome.stderr.decode(errors="replace"),
    }
    return told | ({"limit": outcome.limit} if outcome.limit else {}) | ({"cut": True} if outcome.cut else {})


def _failure(outcome: Outcome) -> Failure | None:
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
