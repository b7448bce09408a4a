"""Track which engines are decoding, share the physical cores among them, and lend some to sandbox jobs.

If there are more engines than cores, they take turns of `TURN_SECONDS`, the most urgent first. An engine that has
waited for `PATIENCE_SECONDS` goes first, so none starves.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from orchestrator.engine.errors import EngineDied
from orchestrator.pool.machine import Topology
from orchestrator.pool.places import Replica
from orchestrator.pool.policy import ReplicaId

TURN_SECONDS: Final = 0.25
PATIENCE_SECONDS: Final = 2.0
# The share of its speed that decoding may lose to urgent jobs, and so the share of the cores it lends.
LENT_SHARE: Final = 0.125


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingEngine:
    """An engine that has work. All times are in seconds of one clock."""

    replica_id: ReplicaId
    ceiling: int | None = None  # most threads; None for no limit
    node: int | None = None  # NUMA node it is bound to
    due: float = 0.0  # when its most urgent work should be done
    running: bool = False
    since: float = 0.0  # start of its turn, or of its wait


def lendable_cores(topology: Topology) -> int:
    # 0 on a small machine, where jobs get a part of a core instead.
    return int(LENT_SHARE * topology.cores)


def share_cores(
    topology: Topology, engines: Iterable[DecodingEngine], now: float = 0.0, lent: int = 0
) -> dict[ReplicaId, int]:
    """Return the threads of each engine; 0 for one that must wait for its turn. `lent` cores are left to jobs.

    Engines get equal shares, up to their ceiling and node. The most urgent get the rest.
    """
    queue = sorted(engines, key=lambda engine: _rank(engine, now))
    shares = {engine.replica_id: 0 for engine in queue}
    remaining = topology.cores - lent
    free = {node.id: len(node.cores) for node in topology.nodes}
    unsatisfied: Sequence[DecodingEngine] = queue
    while remaining and unsatisfied:
        growing: list[DecodingEngine] = []
        for engine in unsatisfied:
            if remaining and (engine.node is None or free[engine.node]):
                shares[engine.replica_id] += 1
                remaining -= 1
                if engine.node is not None:
                    free[engine.node] -= 1
                if engine.ceiling is None or shares[engine.replica_id] < engine.ceiling:
                    growing.append(engine)
        unsatisfied = growing
    return shares


def _rank(engine: DecodingEngine, now: float) -> tuple[int, float]:
    spent = now - engine.since
    # First the engines within their turn, then those that have waited too long, then by urgency.
    if engine.running and spent < TURN_SECONDS:
        return 0, engine.since
    if not engine.running and spent >= PATIENCE_SECONDS:
        return 1, engine.since
    return 2, engine.due


@dataclass(slots=True)
class _Work:
    ceiling: int | None  # most threads; None for no limit
    since: float  # start of its turn, or of its wait
    running: bool = False
    threads: int = 0
    due: list[float] = field(default_factory=list)  # one deadline per generation


class Decoding:
    """Shares the cores of one machine among the engines that have work.

    The task `rotate` must run all the time. `lend` leaves cores to sandbox jobs, and `subscribe` reports changes.
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
        return self.topology.cores

    @property
    def engines(self) -> int:
        return sum(work.running for work in self._work.values())

    @property
    def free(self) -> int:
        return self.cores - sum(work.threads for work in self._work.values())

    async def lend(self, jobs: int) -> None:
        """Leave a core to each of `jobs` jobs until the next call, within `lendable_cores`."""
        lent = min(jobs, lendable_cores(self.topology))
        if lent != self._lent:
            self._lent = lent
            await self._share()

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever `engines` or `free` may have changed."""
        self._subscribers.append(changed)

    @contextlib.asynccontextmanager
    async def of(self, replica: Replica, ceiling: int | None, due: float) -> AsyncIterator[None]:
        """Count a generation, due at `due`, while the block runs. `ceiling` is the engine's most threads."""
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
                # It must not rest when the next request comes.
                await self._set_threads(replica, max(1, replica.threads))
            if not work.due or self._turns_needed.is_set():
                await self._share()

    @contextlib.asynccontextmanager
    async def of_loading(self, replica: Replica, ceiling: int | None) -> AsyncIterator[int]:
        """Count a loading engine as decoding, since it measures its steps. Yields its threads, at least one."""
        work = self._work[replica] = _Work(ceiling, _now(), running=True, due=[_now()])
        try:
            shares = await self._share()
            yield max(1, shares[replica.replica_id])
        finally:
            if self._work.get(replica) is work:
                del self._work[replica]
            await self._share()

    async def rotate(self) -> None:
        """Share the cores after each turn while engines must wait. Never returns."""
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
        for replica, work in tuple(self._work.items()):  # work may start or end during `_set_threads`
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
        if replica.engine is None or replica.threads == threads:
            return
        replica.threads = threads
        # The callers of a dead engine get the error.
        with contextlib.suppress(EngineDied):
            await replica.engine.set_threads(threads)


def _now() -> float:
    return asyncio.get_running_loop().time()
