"""Run tools and artifacts as jobs of the sandbox, and tell a tool's verdict from a tool that did not work."""

import asyncio
import math
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from time import perf_counter

from orchestrator.run.gates.contract import Artifact, GateError, RunJob
from orchestrator.run.gates.findings import output_tail
from orchestrator.run.gates.shares import PATIENCE, JobShares, NoEngines, is_urgent
from orchestrator.run.sandbox.contract import (
    MIB,
    JobOutcome,
    SandboxJob,
    SandboxLimits,
)
from orchestrator.run.sandbox.errors import SandboxError, StartTimeout
from orchestrator.run.sandbox.sandbox import Sandbox
from orchestrator.task.events import FailureKind
from orchestrator.task.stages import waiting_for_core


@dataclass(slots=True, eq=False)
class _Waiting:
    due: float
    turn: "asyncio.Future[None]"


@dataclass(slots=True)
class Turns:
    """At most `urgent` urgent jobs run at once. Others start only while fewer than `patient` jobs run."""

    urgent: int
    patient: int
    _waiting: list[_Waiting] = field(default_factory=list)
    _running: list[float] = field(default_factory=list)

    @asynccontextmanager
    async def of(self, due: float) -> AsyncIterator[None]:
        """Wait for the turn of a job that is due at `due` (event loop time), and hold it."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(due, loop.create_future())
        self._waiting.append(waiting)
        self._waiting.sort(key=lambda job: job.due)
        hurry = loop.call_later(max(0.0, due - PATIENCE - loop.time()), self._grant)
        try:
            self._grant()
            await waiting.turn
            yield
        finally:
            hurry.cancel()
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            else:
                self._running.remove(due)
            self._grant()

    def _grant(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._waiting and self._may_run(self._waiting[0].due, now):
            waiting = self._waiting.pop(0)
            self._running.append(waiting.due)
            if not waiting.turn.done():
                waiting.turn.set_result(None)

    def _may_run(self, due: float, now: float) -> bool:
        if is_urgent(due, now):
            return sum(is_urgent(running, now) for running in self._running) < self.urgent
        # So no job with slack keeps an urgent one waiting.
        return len(self._running) < self.patient


# Limits of a tool that only reads the artifacts; a long artifact may have many findings. The limit that counts is
# `cpu`: on a busy machine a job may get only a tenth of a core, so `wall` is ten times as long.
TOOL_LIMITS = SandboxLimits(wall=600.0, cpu=60, memory=512 * MIB, processes=4, output=4 * MIB)

# Limits of tests and commands, which run the artifacts.
CODE_LIMITS = SandboxLimits(wall=300.0, cpu=20, memory=512 * MIB, processes=8)

_TIMES = ("wall", "cpu")
# The share of its limit `wall` that a job waits at most, whatever its slack, so that enough of it is left.
_MOST_SLACK = 0.25


def bench_limits(threshold: float) -> SandboxLimits:
    """Return limits that never end a program that stays within `threshold` seconds."""
    wall = ceil(threshold) + 1
    cpu = wall * CODE_LIMITS.processes  # of all its threads together
    # Niceness 0: otherwise the time depends on how busy the engines next to it are.
    return replace(CODE_LIMITS, wall=max(CODE_LIMITS.wall, wall), cpu=max(CODE_LIMITS.cpu, cpu), niceness=0)


class JobRunner:
    """Runs jobs in the sandbox: at most `limit` urgent ones at once, and a quarter as many with slack.

    Gates and the tools of steps have separate runners that share `shares`: a tool's job counts against its step's
    deadline, so it must not wait for jobs of gates.
    """

    def __init__(self, sandbox: Callable[[], Awaitable[Sandbox]], limit: int, shares: JobShares | None = None) -> None:
        """`sandbox` is called for each job; it may raise SandboxUnavailable. Without `shares`, engines are ignored."""
        self._sandbox = sandbox
        self._turns = Turns(limit, max(1, limit // 4))
        self._shares = shares or JobShares(NoEngines(limit))

    async def run(self, job: SandboxJob, slack: float = 0.0) -> JobOutcome:
        """Run a job that may be late by `slack` seconds without delaying its run.

        Raises GateError if it could not be run, or twice hardly got a core.
        """
        try:
            outcome = await self._run(job, min(slack, _MOST_SLACK * job.limits.wall))
            if outcome.starved:
                # The machine was too busy: try again, before all other jobs.
                outcome = await self._run(job, -math.inf)
        except SandboxError as error:
            raise GateError(str(error), final=not isinstance(error, StartTimeout)) from error
        if outcome.starved:
            raise GateError(f"{job.argv[0]} hardly got a core in {outcome.seconds:.0f} s: this machine is too busy")
        return outcome

    def with_slack(self, slack: float) -> RunJob:
        return partial(self.run, slack=slack)

    async def _run(self, job: SandboxJob, slack: float) -> JobOutcome:
        sandbox = await self._sandbox()
        due = asyncio.get_running_loop().time() + slack
        async with AsyncExitStack() as stack:
            with waiting_for_core():
                await stack.enter_async_context(self._turns.of(due))
                niceness = await stack.enter_async_context(self._shares.of(due))
            return await sandbox.run(job, niceness if job.limits.niceness is None else None)


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
