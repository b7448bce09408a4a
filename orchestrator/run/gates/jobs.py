"""Run tools and artifacts for gates, and tell a tool's verdict from a tool that did not work."""

import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from time import perf_counter

from orchestrator.run.gates.contract import Artifact, GateError, RunJob
from orchestrator.run.gates.findings import output_tail
from orchestrator.run.sandbox.contract import MIB, JobOutcome, SandboxJob, SandboxLimits
from orchestrator.task.events import FailureKind

# Limits of a tool that only reads the artifacts; a long artifact may have many findings. The limit that counts is
# `cpu`: on a busy machine a job may get only a tenth of a core, so `wall` is ten times as long.
TOOL_LIMITS = SandboxLimits(wall=600.0, cpu=60, memory=512 * MIB, processes=4, output=4 * MIB)

# Limits of tests and commands, which run the artifacts.
CODE_LIMITS = SandboxLimits(wall=300.0, cpu=20, memory=512 * MIB, processes=8)

_TIMES = ("wall", "cpu")


def bench_limits(threshold: float) -> SandboxLimits:
    """Return limits that never end a program that stays within `threshold` seconds."""
    wall = ceil(threshold) + 1
    cpu = wall * CODE_LIMITS.processes  # of all its threads together
    # Niceness 0: otherwise the time depends on how busy the engines next to it are.
    return replace(CODE_LIMITS, wall=max(CODE_LIMITS.wall, wall), cpu=max(CODE_LIMITS.cpu, cpu), niceness=0)


class JobClock:
    """Separates the time that a gate or tool call computes from the time that its jobs wait."""

    def __init__(self, run: RunJob, now: Callable[[], float] = perf_counter) -> None:
        self._run = run
        self._now = now
        self._started_at = now()
        # Seconds of all jobs, waiting included; None if there were none.
        self._job_seconds: float | None = None
        self._worked = 0.0

    async def run(self, job: SandboxJob) -> JobOutcome:
        began = self._now()
        outcome = await self._run(job)
        self._job_seconds = (self._job_seconds or 0.0) + self._now() - began
        self._worked += outcome.work_seconds
        return outcome

    def read(self) -> tuple[float, float | None]:
        """Return (seconds so far, seconds of work); the latter is None if no job has run: then all of it was work."""
        seconds = self._now() - self._started_at
        return seconds, None if self._job_seconds is None else max(0.0, seconds - self._job_seconds) + self._worked


def files_of(artifacts: Iterable[Artifact]) -> dict[str, bytes]:
    return {artifact.file: artifact.data for artifact in artifacts}


def path_arguments(files: Iterable[str]) -> tuple[str, ...]:
    # With `./` no name looks like an option.
    return tuple(f"./{name}" for name in files)


def place_of(tool: str, *, is_module: bool) -> str | None:
    """Return where a tool of the gates is installed, as they find it; None if it is not.

    A module runs in this interpreter, so the PATH does not matter for it.
    """
    if is_module:
        spec = find_spec(tool)
        return None if spec is None else spec.origin
    beside = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    return shutil.which(tool, path=beside)


def not_installed(tool: str) -> str:
    return f"{tool} is not installed; accepted: pip install 'orchestrator[gates]'"


async def run_tool(
    run: RunJob,
    argv: tuple[str, ...],
    files: Mapping[str, bytes],
    accepted: Collection[int],
    keep: tuple[str, ...] = (),
    stdin: bytes = b"",
) -> JobOutcome:
    """Run a tool that reads all `files`.

    `accepted` are the exit codes of a verdict; `keep` names files to read back. Raises GateError for other exit codes,
    cut output, or a limit.
    """
    is_module = "-m" in argv[:-1]
    name = argv[argv.index("-m") + 1] if is_module else argv[0]
    if place_of(name, is_module=is_module) is None:
        raise GateError(not_installed(name), final=True)
    outcome = await run(SandboxJob(argv=argv, files=files, stdin=stdin, limits=TOOL_LIMITS, keep=keep))
    refuse_stopped(name, outcome, TOOL_LIMITS)
    if outcome.exit_code not in accepted or outcome.cut:
        raise GateError(f"{name} did not work: {_ended(outcome)}", final=True)
    return outcome


async def run_code(
    run: RunJob,
    argv: tuple[str, ...],
    files: Mapping[str, bytes],
    name: str,
    limits: SandboxLimits = CODE_LIMITS,
    stdin: bytes = b"",
) -> JobOutcome:
    """Run a program that runs the artifacts; messages call it `name`. Raises GateError if a limit ended it."""
    outcome = await run(SandboxJob(argv=argv, files=files, stdin=stdin, limits=limits))
    refuse_stopped(name, outcome, limits)
    return outcome


def refuse_stopped(name: str, outcome: JobOutcome, limits: SandboxLimits) -> None:
    """Raise GateError if a limit ended the program: TIMEOUT for limits of time, else RESOURCE."""
    if outcome.limit is None:
        return
    kind = FailureKind.TIMEOUT if outcome.limit in _TIMES else FailureKind.RESOURCE
    raise GateError(f"{name} was stopped: it used {_allowed(outcome, limits)}", kind)


def _allowed(outcome: JobOutcome, limits: SandboxLimits) -> str:
    match outcome.limit:
        case "wall":
            return f"all of its {limits.wall:g} seconds"
        case "cpu":
            return f"all of its {limits.cpu} seconds of processor time"
        case "processes":
            return f"more than {limits.processes} processes"
        case "memory":
            return f"more than {limits.memory // MIB} MiB of memory"
        case "disk":
            return f"more than {limits.disk // MIB} MiB of disk"
        case _:
            return f"more than {limits.output // 1024} KiB of output"


def _ended(outcome: JobOutcome) -> str:
    how = f"signal {outcome.signal}" if outcome.exit_code is None else f"exit code {outcome.exit_code}"
    tail = output_tail(outcome.stderr or outcome.stdout, 300)
    cut = ", with more output than it may write" if outcome.cut else ""
    return f"{how}{cut}: {tail}" if tail else f"{how}{cut}"
