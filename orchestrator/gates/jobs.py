"""Run tools on artifacts in the sandbox, and tell a tool's verdict from a tool that came to none."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from math import ceil

from orchestrator.events import FailureKind
from orchestrator.gates.contract import Artifact, GateError, RunJob
from orchestrator.gates.findings import output_tail
from orchestrator.sandbox import MIB, Job, Limits, Outcome, Sandbox, SandboxError

TOOL_LIMITS = Limits(wall=600.0, cpu=60, memory=512 * MIB, processes=4, output=4 * MIB, idle=True)
"""What a checker may use that only reads the artifacts. It has much to say of a long artifact that is all wrong.

Gates are idle jobs: beside an engine that decodes on all cores of a machine of two, checks of niceness 10 or 19 left
it a fifth or a quarter of its speed, and idle ones 0.96. They then take 9 to 18 s instead of 0.6 s, so they have time.
"""

CODE_LIMITS = Limits(wall=300.0, cpu=20, memory=512 * MIB, processes=8, idle=True)
"""What tests and commands may use, which run the artifacts."""

_TIMES = ("wall", "cpu")


def timed_limits(threshold: float) -> Limits:
    """Return what a program may use that is timed against a threshold in seconds. They end nothing that it accepts.

    Such a job is not idle: it would be as slow as the engines beside it are busy. Its threads use processor time side
    by side, and count together.
    """
    wall = ceil(threshold) + 1
    cpu = wall * CODE_LIMITS.processes
    return replace(CODE_LIMITS, wall=max(CODE_LIMITS.wall, wall), cpu=max(CODE_LIMITS.cpu, cpu), idle=False)


def max_concurrent_jobs(cores: int) -> int:
    """Return how many jobs of gates may run at once beside engines that decode on all `cores` physical cores.

    Users wait for the engines, so gates get what time the engines leave: with a quarter as many jobs as cores, decoding
    keeps nine tenths of its speed (`make bench-gates` measures it).
    """
    return max(1, cores // 4)


class JobRunner:
    """Runs jobs in the sandbox, at most `limit` of them at once.

    Gates and the tools of steps each have a runner of their own: a tool's job counts against its step's deadline, so it
    must not wait for jobs of gates.
    """

    def __init__(self, sandbox: Callable[[], Awaitable[Sandbox]], limit: int) -> None:
        """`sandbox` is called for each job, and raises `SandboxUnavailable` where there is no sandbox."""
        self._sandbox = sandbox
        self._slots = asyncio.Semaphore(limit)

    async def run(self, job: Job) -> Outcome:
        """Return how the job ended. Raises `GateError` for a job that could not be run."""
        try:
            sandbox = await self._sandbox()
            async with self._slots:
                return await sandbox.run(job)
        except SandboxError as error:
            raise GateError(str(error), final=True) from error


def files_of(artifacts: Iterable[Artifact]) -> dict[str, bytes]:
    """Return the artifacts as files of a job."""
    return {artifact.file: artifact.data for artifact in artifacts}


def paths(files: Iterable[str]) -> tuple[str, ...]:
    """Return names of files as a command line can hold them: none looks like an option or like a file of options."""
    return tuple(f"./{name}" for name in files)


async def run_tool(
    run: RunJob,
    argv: tuple[str, ...],
    files: Mapping[str, bytes],
    accepted: Collection[int],
    keep: tuple[str, ...] = (),
) -> Outcome:
    """Return how a checker ended that has looked at all `files`.

    Raises `GateError` where a limit ended it, or its exit code is not one of those that `accepted` verdicts have.
    """
    outcome = await run(Job(argv=argv, files=files, limits=TOOL_LIMITS, keep=keep))
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
    keep: tuple[str, ...] = (),
    limits: Limits = CODE_LIMITS,
) -> Outcome:
    """Return how a program called `name` ended that runs the artifacts. Raises `GateError` where a limit ended it."""
    outcome = await run(Job(argv=argv, files=files, limits=limits, keep=keep))
    refuse_stopped(name, outcome, limits)
    return outcome


def refuse_stopped(name: str, outcome: Outcome, limits: Limits) -> None:
    """Raise `GateError` if a limit ended a program: TIMEOUT for the limits of time, RESOURCE for all others."""
    if outcome.limit is None:
        return
    kind = FailureKind.TIMEOUT if outcome.limit in _TIMES else FailureKind.RESOURCE
    raise GateError(f"{name} was stopped: it used {_allowed(outcome, limits)}", kind)


def _allowed(outcome: Outcome, limits: Limits) -> str:
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


def _ended(outcome: Outcome) -> str:
    how = f"signal {outcome.signal}" if outcome.exit_code is None else f"exit code {outcome.exit_code}"
    said = output_tail(outcome.stderr or outcome.stdout, 300)
    cut = ", with more output than it may write" if outcome.cut else ""
    return f"{how}{cut}: {said}" if said else f"{how}{cut}"
