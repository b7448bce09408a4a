"""Give the jobs of gates and tools processor time by their slack, next to engines that decode on the same cores.

A job without slack is *urgent*: its run waits for it. It gets a core of its own if one is free or lent; otherwise a
small share of one, so that decoding loses no more than `lent_share` of its speed. A job with slack runs at idle
priority.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from orchestrator.run.sandbox.niceness import IDLE, LOWEST, Niceness, niceness_of

# Seconds. A job with less slack is urgent: predictions are no more exact, and an idle job may take as long.
PATIENCE = 5.0


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
