"""Keep who is decoding, and tell the engines how many threads they have."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from orchestrator.engine.errors import EngineDied
from orchestrator.pool.cores import TURN_SECONDS, Decoder, share_cores
from orchestrator.pool.managed_model import Replica
from orchestrator.pool.placement import Place
from orchestrator.pool.topology import Topology


@dataclass(slots=True)
class _Work:
    """What an engine has to do: when each of its generations is due; and since when it runs, or waits for its turn."""

    ceiling: int | None
    since: float
    running: bool = False
    due: list[float] = field(default_factory=list)


class Decoding:
    """The engines that have work, on the cores of one machine. `rotate` has to run beside them."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._work: dict[Replica, _Work] = {}
        self._crowded = asyncio.Event()

    @contextlib.asynccontextmanager
    async def of(self, replica: Replica, ceiling: int | None, due: float) -> AsyncIterator[None]:
        """Count a generation, which should be done at `due`, and share the cores anew where that changes something.

        `ceiling` is the most threads that its engine may have.
        """
        work = self._work.setdefault(replica, _Work(ceiling, _now()))
        work.due.append(due)
        replica.active += 1
        try:
            if len(work.due) == 1 or self._crowded.is_set():
                await self._share()
            yield
        finally:
            replica.active -= 1
            work.due.remove(due)
            if not work.due:
                del self._work[replica]
                await self._tell(replica, max(1, replica.threads))  # so that it hears what comes next
            if not work.due or self._crowded.is_set():
                await self._share()

    @contextlib.asynccontextmanager
    async def of_loading(self, replica: Replica, ceiling: int | None) -> AsyncIterator[int]:
        """Count an engine that is being loaded, and yield the threads that it may have: its share, but at least one.

        It measures how long its steps take, so it computes like those that decode. It keeps what it is given here.
        """
        work = self._work[replica] = _Work(ceiling, _now(), running=True, due=[_now()])
        try:
            shares = await self._share()
            yield max(1, shares[replica.place])
        finally:
            if self._work.get(replica) is work:
                del self._work[replica]
            await self._share()

    async def rotate(self) -> None:
        """Let those who wait have their turn, for as long as someone does. Never returns."""
        while True:
            await self._crowded.wait()
            await asyncio.sleep(TURN_SECONDS)
            await self._share()

    async def _share(self) -> dict[Place, int]:
        now = _now()
        decoders = [
            Decoder(
                place=replica.place,
                ceiling=work.ceiling,
                node=replica.node,
                due=min(work.due),
                running=work.running,
                since=work.since,
            )
            for replica, work in self._work.items()
        ]
        shares = share_cores(self.topology, decoders, now)
        for replica, work in self._work.items():
            threads = shares[replica.place]
            if work.running != (threads > 0):
                work.running, work.since = threads > 0, now
            await self._tell(replica, threads)
        if all(shares.values()):
            self._crowded.clear()
        else:
            self._crowded.set()
        return shares

    async def _tell(self, replica: Replica, threads: int) -> None:
        """Set an engine's threads. One that has died is found out by those who wait for it."""
        if replica.engine is None or replica.threads == threads:
            return
        replica.threads = threads
        with contextlib.suppress(EngineDied):
            await replica.engine.set_threads(threads)


def _now() -> float:
    return asyncio.get_running_loop().time()
