"""Run tools and artifacts as jobs of the sandbox, and tell a tool's verdict from a tool that did not work."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from math import ceil
from time import perf_counter

from orchestrator.run.gates.contract import Artifact, GateError, RunJob
from orchestrator.run.gates.findings import output_tail
from orchestrator.run.gates.shares import JobShares, NoEngines
from orchestrator.run.gates.turns import Turns
from orchestrator.run.sandbox import MIB, JobOutcome, Sandbox, SandboxError, SandboxJob, SandboxLimits, StartTimeout
from orchestrator.task.events import FailureKind
from orchestrator.task.stages import waiting_for_core

TOOL_LIMITS = SandboxLimits(wall=600.0, cpu=60, memory=512 * MIB, processes=4, output=4 * MIB)
"""Limits of a tool that only reads the artifacts. The output is large, as a long artifact may have many findings.

The limit is `cpu`. A busy machine may leave a job a tenth of a core, so `wall` is no less than ten times as long.
"""

CODE_LIMITS = SandboxLimits(wall=300.0, cpu=20, memory=512 * MIB, processes=8)
"""Limits of tests and commands, which run the artifacts."""

_TIMES = ("wall", "cpu")
_MOST_SLACK = 0.25
"""A job waits for this share of its limit `wall` at most, whatever its slack, so that enough is left of it."""


def bench_limits(threshold: float) -> SandboxLimits:
    """Return the limits of a program that is timed. They never end one that stays within `threshold` seconds.

    Such a job has the niceness 0, since its time would otherwise depend on how busy the engines next to it are. The
    limit of CPU time is for all of its threads together.
    """
    wall = ceil(threshold) + 1
    cpu = wall * CODE_LIMITS.processes
    return replace(CODE_LIMITS, wall=max(CODE_LIMITS.wall, wall), cpu=max(CODE_LIMITS.cpu, cpu), niceness=0)


class JobRunner:
    """Runs jobs in the sandbox: at most `limit` urgent ones at once, and a quarter as many that have slack.

    Gates and the tools of steps each have a runner of their own: a tool's job counts against its step's deadline, so it
    must not wait for jobs of gates. They have `shares` in common.
    """

    def __init__(self, sandbox: Callable[[], Awaitable[Sandbox]], limit: int, shares: JobShares | None = None) -> None:
        """`sandbox` is called for each job, and raises `SandboxUnavailable` where there is no sandbox.

        Without `shares` no engine is taken into account.
        """
        self._sandbox = sandbox
        self._turns = Turns(limit, max(1, limit // 4))
        self._shares = shares or JobShares(NoEngines(limit))

    async def run(self, job: SandboxJob, slack: float = 0.0) -> JobOutcome:
        """Return how the job ended, which may be late by `slack` seconds without delaying its run.

        A job that hardly got a core is run again, before all others. Raises `GateError` for a job that could not be
        run, also if that was for want of a core.
        """
        try:
            outcome = await self._run(job, min(slack, _MOST_SLACK * job.limits.wall))
            if outcome.starved:
                outcome = await self._run(job, -math.inf)
        except SandboxError as error:
            raise GateError(str(error), final=not isinstance(error, StartTimeout)) from error
        if outcome.starved:
            raise GateError(f"{job.argv[0]} hardly got a core in {outcome.seconds:.0f} s: this machine is too busy")
        return outcome

    def with_slack(self, slack: float) -> RunJob:
        """Return what runs the jobs of a step with this slack, in seconds."""
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
    """Tells what a gate or a call of a tool computes from what its jobs wait: for the sandbox, where few jobs run at
    once, and for a core. It begins when it is made.
    """

    def __init__(self, run: RunJob, now: Callable[[], float] = perf_counter) -> None:
        self._run = run
        self._now = now
        self._began = now()
        self._taken: float | None = None
        """How long the jobs took, with what they waited; None if there were none."""
        self._worked = 0.0

    async def run(self, job: SandboxJob) -> JobOutcome:
        """Run a job, as `RunJob` says."""
        began = self._now()
        outcome = await self._run(job)
        self._taken = (self._taken or 0.0) + self._now() - began
        self._worked += outcome.work_seconds
        return outcome

    def read(self) -> tuple[float, float | None]:
        """Return the seconds so far, and how many of them were work; None where no job has run, and so all were."""
        seconds = self._now() - self._began
        return seconds, None if self._taken is None else max(0.0, seconds - self._taken) + self._worked


def files_of(artifacts: Iterable[Artifact]) -> dict[str, bytes]:
    """Return the artifacts as the files of a job: contents by name."""
    return {artifact.file: artifact.data for artifact in artifacts}


def path_arguments(files: Iterable[str]) -> tuple[str, ...]:
    """Return the names of files as arguments of a command, with `./` before them so that none looks like an option."""
    return tuple(f"./{name}" for name in files)


async def run_tool(
    run: RunJob,
    argv: tuple[str, ...],
    files: Mapping[str, bytes],
    accepted: Collection[int],
    keep: tuple[str, ...] = (),
    stdin: bytes = b"",
) -> JobOutcome:
    """Run a tool that reads all `files`, and return how it ended.

    `accepted` are the exit codes with which the tool reports a verdict, and `keep` names files to read back. Raises
    `GateError` if a limit ended the tool, its output was cut, or it ended with another exit code.
    """
    outcome = await run(SandboxJob(argv=argv, files=files, stdin=stdin, limits=TOOL_LIMITS, keep=keep))
    name = argv[argv.index("-m") + 1] if "-m" in argv[:-1] else argv[0]
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
    """Run a program that runs the artifacts, and return how it ended. Raises `GateError` if a limit ended it.

    `name` is what messages call the program.
    """
    outcome = await run(SandboxJob(argv=argv, files=files, stdin=stdin, limits=limits))
    refuse_stopped(name, outcome, limits)
    return outcome


def refuse_stopped(name: str, outcome: JobOutcome, limits: SandboxLimits) -> None:
    """Raise `GateError` if a limit ended the program: TIMEOUT for the limits of time, RESOURCE for all others."""
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
    said = output_tail(outcome.stderr or outcome.stdout, 300)
    cut = ", with more output than it may write" if outcome.cut else ""
    return f"{how}{cut}: {said}" if said else f"{how}{cut}"
