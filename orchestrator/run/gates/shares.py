"""Run the jobs of gates and tools in turns, with processor time by their slack, next to engines that decode.

A job without slack is *urgent*: its run waits for it. It gets a core of its own if one is free or lent; otherwise a
small share of one, so that decoding loses no more than `lent_share` of its speed. A job with slack runs at idle
priority.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from orchestrator.run.gates.contract import GateError, RunJob
from orchestrator.run.sandbox.contract import JobOutcome, SandboxJob
from orchestrator.run.sandbox.errors import SandboxError, StartTimeout
from orchestrator.run.sandbox.niceness import IDLE, LOWEST, Niceness, niceness_of
from orchestrator.run.sandbox.sandbox import Sandbox
from orchestrator.task.stages import waiting_for_core

# Seconds. A job with less slack is urgent: predictions are no more exact, and an idle job may take as long.
PATIENCE = 5.0
# The share of its limit `wall` that a job waits at most, whatever its slack, so that enough of it is left.
_MOST_SLACK = 0.25


class DecodingCores(Protocol):
    @property
    def lent_share(self) -> float:
        """The share of its speed that decoding may lose to urgent jobs."""

    @property
    def cores(self) -> int:
        """The number of cores."""

    @property
    def engines(self) -> int:
        """How many engines are computing."""

    @property
    def free(self) -> int:
        """How many cores no engine computes on."""

    async def lend(self, jobs: int) -> None:
        """Leave one core to each of `jobs`, as far as engines may lend cores, until the next call."""

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever `engines` or `free` may have changed."""


@dataclass(frozen=True, slots=True)
class NoEngines:
    cores: int = 1
    engines: int = 0
    lent_share: float = 0.0

    @property
    def free(self) -> int:
        return self.cores

    async def lend(self, jobs: int) -> None:
        """Do nothing."""

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Do nothing."""


def is_urgent(due: float, now: float) -> bool:
    return due - now <= PATIENCE


def share_out(urgent: Sequence[bool], cores: DecodingCores) -> list[int]:
    """Return the niceness of each running job. `urgent` has a flag for each job, the most urgent jobs first."""
    if not cores.engines:
        return [0 if is_pressing else LOWEST for is_pressing in urgent]
    alone = max(0, cores.free)
    sharing = sum(urgent) - alone
    shared = _next_to_engines(max(1, sharing), cores)
    return [(0 if place < alone else shared) if is_pressing else IDLE for place, is_pressing in enumerate(urgent)]


def _next_to_engines(jobs: int, cores: DecodingCores) -> int:
    # The kernel weighs the threads of an engine as one process, whose weight is spread over their cores (autogroup
    # or control group). All threads wait for the slowest one, so an engine loses the share of any one of its cores.
    engine = cores.engines / cores.cores
    lost = cores.lent_share
    return niceness_of(engine * lost / (1 - lost) / jobs)


@dataclass(slots=True, eq=False)
class _RunningJob:
    due: float
    niceness: Niceness


class JobShares:
    """Sets the niceness of all running jobs when a job starts, ends or runs out of slack, or engines change."""

    def __init__(self, cores: DecodingCores) -> None:
        self.cores = cores
        self._jobs: list[_RunningJob] = []
        cores.subscribe(self._share_out)

    @asynccontextmanager
    async def of(self, due: float) -> AsyncIterator[Niceness]:
        """Yield the niceness of a job that is due at `due` (event loop time). It may change meanwhile."""
        loop = asyncio.get_running_loop()
        job = _RunningJob(due, Niceness(IDLE))
        self._jobs.append(job)
        self._jobs.sort(key=lambda running: running.due)
        hurry = loop.call_later(max(0.0, due - PATIENCE - loop.time()), self._share_out)
        try:
            await self._share_cores()
            yield job.niceness
        finally:
            hurry.cancel()
            self._jobs.remove(job)
            await self._share_cores()

    async def _share_cores(self) -> None:
        await self.cores.lend(sum(self._urgent()))
        self._share_out()

    def _share_out(self) -> None:
        if not self._jobs:
            return
        for job, niceness in zip(self._jobs, share_out(self._urgent(), self.cores), strict=True):
            job.niceness.set(niceness)

    def _urgent(self) -> list[bool]:
        now = asyncio.get_running_loop().time()
        return [is_urgent(job.due, now) for job in self._jobs]


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
