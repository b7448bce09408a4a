"""Keep track of which engines are decoding, and set how many threads each of them computes with."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from orchestrator.engine.errors import EngineDied
from orchestrator.pool.cores import LENT_SHARE, TURN_SECONDS, DecodingEngine, lendable_cores, share_cores
from orchestrator.pool.managed_model import Replica
from orchestrator.pool.placement import ReplicaId, Topology


@dataclass(slots=True)
class _Work:
    """The work of one engine."""

    ceiling: int | None
    """The most threads that it may have; None for no limit."""
    since: float
    """Since when it is running, or waiting for its turn."""
    running: bool = False
    threads: int = 0
    """How many threads it computes with."""
    due: list[float] = field(default_factory=list)
    """When each of its generations should be done."""


class Decoding:
    """Shares the cores of one machine among the engines that have work. The task `rotate` has to run all the time.

    Jobs of the sandbox compute on the same cores. `lend` leaves cores to them, and `subscribe` says when
    the shares of the engines change.
    """

    lent_share = LENT_SHARE

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._work: dict[Replica, _Work] = {}
        self._turns_needed = asyncio.Event()
        self._lent = 0
        self._subscribers: list[Callable[[], None]] = []

    @property
    def cores(self) -> int:
        """The cores of the machine."""
        return self.topology.cores

    @property
    def engines(self) -> int:
        """How many engines are computing."""
        return sum(work.running for work in self._work.values())

    @property
    def free(self) -> int:
        """How many cores no engine computes on."""
        return self.cores - sum(work.threads for work in self._work.values())

    async def lend(self, jobs: int) -> None:
        """Leave a core to each of so many jobs, as far as engines may lend cores, until the next call."""
        lent = min(jobs, lendable_cores(self.topology))
        if lent != self._lent:
            self._lent = lent
            await self._share()

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` from now on whenever `engines` or `free` may have changed."""
        self._subscribers.append(changed)

    @contextlib.asynccontextmanager
    async def of(self, replica: Replica, ceiling: int | None, due: float) -> AsyncIterator[None]:
        """Count a generation, which should be done at `due`, as work of its engine while the block runs.

        The cores are shared anew if this changes the shares. `ceiling` is the most threads that the engine may have.
        """
        work = self._work.setdefault(replica, _Work(ceiling, _now()))
        work.due.append(due)
        replica.active += 1
        try:
            if len(work.due) == 1 or self._turns_needed.is_set():
                await self._share()
            yield
        finally:
            replica.active -= 1
            work.due.remove(due)
            if not work.due:
                del self._work[replica]
                await self._set_threads(
                    replica, max(1, replica.threads)
                )  # so that it does not rest when the next request comes
            if not work.due or self._turns_needed.is_set():
                await self._share()

    @contextlib.asynccontextmanager
    async def of_loading(self, replica: Replica, ceiling: int | None) -> AsyncIterator[int]:
        """Count an engine that is being loaded as decoding, since it measures its steps.

        Yields how many threads it may compute with: its share, but at least one. That number stays until it is loaded.
        """
        work = self._work[replica] = _Work(ceiling, _now(), running=True, due=[_now()])
        try:
            shares = await self._share()
            yield max(1, shares[replica.replica_id])
        finally:
            if self._work.get(replica) is work:
                del self._work[replica]
            await self._share()

    async def rotate(self) -> None:
        """Share the cores anew after each turn, while there are more engines than cores. Never returns."""
        while True:
            await self._turns_needed.wait()
            await asyncio.sleep(TURN_SECONDS)
            await self._share()

    async def _share(self) -> dict[ReplicaId, int]:
        now = _now()
        decoders = [
            DecodingEngine(
                replica_id=replica.replica_id,
                ceiling=work.ceiling,
                node=replica.node,
                due=min(work.due),
                running=work.running,
                since=work.since,
            )
            for replica, work in self._work.items()
        ]
        shares = share_cores(self.topology, decoders, now, self._lent)
        for replica, work in tuple(self._work.items()):  # work may begin or end while an engine is told its threads
            threads = shares[replica.replica_id]
            if work.running != (threads > 0):
                work.running, work.since = threads > 0, now
            work.threads = threads
            await self._set_threads(replica, threads)
        for changed in self._subscribers:
            changed()
        if all(shares.values()):
            self._turns_needed.clear()
        else:
            self._turns_needed.set()
        return shares

    async def _set_threads(self, replica: Replica, threads: int) -> None:
        """Set the number of an engine's threads. If the engine has died, its callers get the error."""
        if replica.engine is None or replica.threads == threads:
            return
        replica.threads = threads
        with contextlib.suppress(EngineDied):
            await replica.engine.set_threads(threads)


def _now() -> float:
    return asyncio.get_running_loop().time()
