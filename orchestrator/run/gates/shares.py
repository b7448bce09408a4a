"""Give the jobs of gates and tools processor time by their slack, next to engines that decode on the same cores.

A job is *urgent* once it has no slack left: its run waits for it. Next to engines an urgent job gets a core of its own
if one is free or lent, and otherwise so small a part of a core that decoding keeps its speed but for the share that it
may lose. A job that still has slack stands back for so long.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from orchestrator.run.sandbox.niceness import IDLE, LOWEST, Niceness, niceness_of

PATIENCE = 5.0
"""A job with less slack than this, in seconds, is urgent: prediction is no better, and an idle job may take as long."""


class DecodingCores(Protocol):
    """The cores of this machine, and the engines that decode on them."""

    @property
    def lent_share(self) -> float:
        """The share of its speed that decoding may lose to urgent jobs."""

    @property
    def cores(self) -> int:
        """The cores of the machine."""

    @property
    def engines(self) -> int:
        """How many engines are computing."""

    @property
    def free(self) -> int:
        """How many cores no engine computes on."""

    async def lend(self, jobs: int) -> None:
        """Leave a core to each of so many jobs, as far as engines may lend cores, until the next call."""

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` from now on whenever `engines` or `free` may have changed."""


@dataclass(frozen=True, slots=True)
class NoEngines:
    """The cores of a machine on which no engine decodes."""

    cores: int = 1
    engines: int = 0
    lent_share: float = 0.0

    @property
    def free(self) -> int:
        """All cores."""
        return self.cores

    async def lend(self, jobs: int) -> None:
        """Do nothing."""

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Do nothing: nothing changes."""


def is_urgent(due: float, now: float) -> bool:
    """Return whether a job that should be done at `due` must not wait."""
    return due - now <= PATIENCE


def share_out(urgent: Sequence[bool], cores: DecodingCores) -> list[int]:
    """Return the niceness of each running job. `urgent` says of each whether it is, the most urgent ones first."""
    if not cores.engines:
        return [0 if each else LOWEST for each in urgent]
    alone = max(0, cores.free)
    sharing = sum(urgent) - alone
    shared = _next_to_engines(max(1, sharing), cores)
    return [(0 if place < alone else shared) if each else IDLE for place, each in enumerate(urgent)]


def _next_to_engines(jobs: int, cores: DecodingCores) -> int:
    """Return the niceness with which `jobs` together get `lent_share` of a core on which an engine decodes, too.

    The kernel weighs the threads of an engine as one process, whose weight is spread over their cores (autogroup, or a
    control group). All threads of an engine wait for the slowest one, so that it loses the share of any of its cores.
    """
    engine = cores.engines / cores.cores
    lost = cores.lent_share
    return niceness_of(engine * lost / (1 - lost) / jobs)


@dataclass(slots=True, eq=False)
class _RunningJob:
    due: float
    niceness: Niceness


class JobShares:
    """Sets the niceness of all running jobs whenever one starts or ends, runs out of slack, or engines change."""

    def __init__(self, cores: DecodingCores) -> None:
        self.cores = cores
        self._jobs: list[_RunningJob] = []
        cores.subscribe(self._share_out)

    @asynccontextmanager
    async def of(self, due: float) -> AsyncIterator[Niceness]:
        """Yield the niceness of a job that should be done at `due`, in the event loop's time. It changes meanwhile."""
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
        for job, niceness in zip(self._jobs, share_out(self._urgent(), self.cores), strict=True):
            job.niceness.set(niceness)

    def _urgent(self) -> list[bool]:
        now = asyncio.get_running_loop().time()
        return [is_urgent(job.due, now) for job in self._jobs]
