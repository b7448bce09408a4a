"""Hold what the pool knows of one model: its engines, who uses them, who waits for one, and how they have failed."""

import asyncio
import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from orchestrator.pool.errors import ModelBroken, ModelUnavailable
from orchestrator.pool.handle import EngineHandle
from orchestrator.pool.placement import Candidate, Place, choose, nodes_for
from orchestrator.pool.policy import Demand, ModelView, ReplicaView, State
from orchestrator.pool.prefix_hashes import PrefixHashes, SeenPrefixes
from orchestrator.pool.status import ModelStatus, ReplicaStatus
from orchestrator.pool.status import State as ShownState
from orchestrator.pool.topology import Topology
from registry.models import ModelEntry

MAX_FAILURES: Final = 3
FAILURE_WINDOW: Final = 60.0
_RETIRING: Final = "the registry says something else now: it ends when nobody uses it any more"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRequest:
    """What a request says of itself: its class, when it should be done (in the event loop's time), how it begins."""

    interactive: bool = True
    due: float = 0.0
    prefix_hashes: PrefixHashes = ()


@dataclass(slots=True, eq=False)
class Waiter:
    """A request that waits for an engine since `since`. Its answer is a replica that it has a lease on."""

    wanted: LeaseRequest
    since: float
    granted: "asyncio.Future[Replica]"


@dataclass(slots=True, eq=False)
class Replica:
    """One engine of a model, or the place for one.

    `bytes` is what it holds of the budget, 0 when it is absent. `leases` counts the requests that have it, `active`
    those of them that generate. It is absent and `asked` for when it shall be loaded although no request waits. Times
    are the event loop's. `gone` is set while it is absent.
    """

    place: Place
    node: int | None = None
    state: State = "absent"
    bytes: int = 0
    engine: EngineHandle | None = None
    asked: float | None = None
    draining: bool = False
    leaving: bool = False
    leases: int = 0
    active: int = 0
    threads: int = 0
    begun_at: float = 0.0
    loaded_at: float = 0.0
    last_used: float = 0.0
    seen: SeenPrefixes = field(default_factory=SeenPrefixes)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.gone.set()

    @property
    def serves(self) -> bool:
        """Whether it takes requests in."""
        alive = self.engine is not None and not self.engine.died.is_set()
        return alive and self.state == "ready" and not self.draining and not self.leaving

    def begin(self, reserved: int, now: float) -> None:
        """Note that it is being loaded, and what is reserved for it, in bytes."""
        self.state, self.bytes, self.asked, self.begun_at = "loading", reserved, None, now
        self.gone.clear()

    def loaded(self, engine: EngineHandle, threads: int, now: float) -> None:
        """Note its engine, which computes with so many threads."""
        self.state, self.engine, self.threads = "ready", engine, threads
        self.loaded_at = self.last_used = now

    def vacate(self) -> None:
        """Note that its process is gone, or was never started."""
        self.state, self.bytes, self.engine, self.threads = "absent", 0, None, 0
        self.draining = self.leaving = False
        self.seen = SeenPrefixes()
        self.gone.set()

    def grant(self, prefix_hashes: PrefixHashes) -> None:
        """Count a request in."""
        self.leases += 1
        self.seen.add(prefix_hashes)

    def view(self, pinned: bool, needed: int) -> ReplicaView:
        """Return what the policy has to know of it. `needed` is in bytes, for when it is absent.

        One that is leaving is no longer held: it frees its bytes for what comes after it.
        """
        return ReplicaView(
            place=self.place,
            bytes=needed if self.state == "absent" else self.bytes,
            state=self.state,
            node=self.node,
            pinned=pinned and not self.leaving,
            requests=self.leases,
            asked=self.asked,
            draining=self.draining,
            leaving=self.leaving,
            loaded_at=self.loaded_at,
            load_seconds=self.loaded_at - self.begun_at,
            last_used=self.last_used,
        )

    def status(self) -> ReplicaStatus:
        """Describe it."""
        return ReplicaStatus(
            number=self.place[1],
            node=self.node,
            state=self.state,
            bytes=self.bytes,
            requests=self.leases,
            active=self.active,
            threads=self.threads if self.engine is not None else None,
            pid=self.engine.info.pid if self.engine is not None else None,
        )


@dataclass(slots=True, eq=False)
class ManagedModel:
    """One model of the registry. `misplaced` says why this machine has no place for it, or is None.

    A `retiring` one was loaded as the registry no longer says. It takes no requests in, and when its engines are gone
    it becomes what its `successor` says, or goes if that is None.
    """

    entry: ModelEntry
    instances: tuple[Replica, ...]
    pinned: bool
    misplaced: str | None = None
    retiring: bool = False
    successor: ModelEntry | None = None
    waiting: dict[Waiter, None] = field(default_factory=dict)
    failures: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_FAILURES))
    last_failure: str | None = None

    @classmethod
    def of(cls, entry: ModelEntry, topology: Topology) -> "ManagedModel":
        """Return a model on a machine, with a replica for each engine that it may have there."""
        known = [node.id for node in topology.nodes]
        misplaced = None
        if entry.numa is not None and entry.numa not in known:
            listed = ", ".join(map(str, known))
            misplaced = f"model {entry.id} is bound to NUMA node {entry.numa}; accepted on this machine: {listed}"
        nodes = nodes_for(topology, entry.instances, entry.numa if misplaced is None else None)
        instances = tuple(Replica((entry.id, number), node) for number, node in enumerate(nodes))
        return cls(entry, instances, entry.residency == "hot", misplaced)

    def retire(self, successor: ModelEntry | None) -> None:
        """Let its engines end when nobody uses them any more."""
        self.retiring, self.successor = True, successor
        for one in self.instances:
            one.asked, one.leaving = None, one.state != "absent"

    def update(self, entry: ModelEntry) -> None:
        """Take up an entry that is loaded just like the one before."""
        if entry.residency != self.entry.residency:
            self.pinned = entry.residency == "hot"
        self.entry, self.retiring, self.successor = entry, False, None

    def become(self, entry: ModelEntry, topology: Topology) -> None:
        """Take up another entry. None of its engines is there; those who wait go on waiting."""
        fresh = ManagedModel.of(entry, topology)
        self.instances, self.misplaced = fresh.instances, fresh.misplaced
        self.failures.clear()
        self.last_failure = None
        self.update(entry)

    @property
    def absent(self) -> bool:
        """Whether it has no process."""
        return all(one.state == "absent" for one in self.instances)

    @property
    def why_not(self) -> str | None:
        """Why there is no point in asking for it, or None if there is."""
        return self.entry.why_not or self.misplaced

    @property
    def hot(self) -> bool:
        """Whether the registry says that it is always there."""
        return self.entry.residency == "hot"

    @property
    def coming(self) -> bool:
        """Whether it has an engine, or will have one."""
        return any(one.state in ("ready", "loading") for one in self.instances)

    def choose(self, prefix_hashes: PrefixHashes) -> Replica | None:
        """Return the engine that a request goes to now, or None if it has to wait for one."""
        number = choose(
            Candidate(one.place[1], one.leases, self.entry.slots, one.seen.match(prefix_hashes))
            for one in self.instances
            if one.serves
        )
        return None if number is None else self.instances[number]

    def serve(self) -> None:
        """Give those who wait an engine each, if there is one."""
        for waiter in tuple(self.waiting):
            replica = self.choose(waiter.wanted.prefix_hashes)
            if replica is None:
                return
            del self.waiting[waiter]
            if not waiter.granted.done():
                replica.grant(waiter.wanted.prefix_hashes)
                waiter.granted.set_result(replica)

    def refuse(self, error: Exception) -> None:
        """Tell those who wait that there will be no engine."""
        for waiter in tuple(self.waiting):
            del self.waiting[waiter]
            if not waiter.granted.done():
                waiter.granted.set_exception(error)

    def view(self, needed: int) -> ModelView:
        """Return what the policy has to know of it; an engine of it needs `needed` bytes."""
        return ModelView(
            slots=self.entry.slots,
            instances=tuple(one.view(self.pinned, needed) for one in self.instances),
            demand=_demand(self.waiting) if self.waiting and not self.retiring else None,
        )

    def failed(self, now: float, reason: str) -> None:
        """Note that an engine died, or could not be started."""
        self.failures.append(now)
        self.last_failure = reason

    def broken_for(self, now: float) -> float:
        """Return for how many seconds the model still counts as broken; 0 if it does not."""
        if len(self.failures) < MAX_FAILURES:
            return 0.0
        return max(0.0, self.failures[0] + FAILURE_WINDOW - now)

    def check(self, now: float) -> None:
        """Raise ModelUnavailable or ModelBroken if there is no point in loading it."""
        if self.why_not is not None:
            raise ModelUnavailable(self.entry.id, self.why_not)
        seconds = self.broken_for(now)
        if seconds > 0:
            what = (
                f"model {self.entry.id} is broken: its engine failed {MAX_FAILURES} times within "
                f"{FAILURE_WINDOW:.0f} s; next try in {seconds:.0f} s; the last time: {self.last_failure}"
            )
            raise ModelBroken(self.entry.id, what, failures=MAX_FAILURES, retry_seconds=seconds)

    def status(self, now: float) -> ModelStatus:
        """Describe it."""
        instances = tuple(one.status() for one in self.instances)
        running = [one for one in instances if one.pid is not None]
        return ModelStatus(
            model=self.entry.id,
            residency=self.entry.residency,
            pinned=self.pinned,
            state=self._state(now),
            bytes=sum(one.bytes for one in instances),
            waiting=len(self.waiting),
            requests=len(self.waiting) + sum(one.requests for one in instances),
            active=sum(one.active for one in instances),
            threads=sum(one.threads or 0 for one in running) if running else None,
            pid=running[0].pid if running else None,
            reason=_RETIRING if self.retiring else self.why_not or self.last_failure,
            instances=instances,
        )

    def _state(self, now: float) -> ShownState:
        states = {one.state for one in self.instances}
        if "ready" in states:
            return "ready"
        if "loading" in states:
            return "loading"
        if self.waiting or any(one.asked is not None for one in self.instances):
            return "waiting"
        if "stopping" in states:
            return "stopping"
        if self.why_not is not None:
            return "unavailable"
        return "broken" if self.broken_for(now) > 0 else "unloaded"


def _demand(waiting: Collection[Waiter]) -> Demand:
    return Demand(
        since=min(waiter.since for waiter in waiting),
        interactive_since=min((waiter.since for waiter in waiting if waiter.wanted.interactive), default=math.inf),
        due=min(waiter.wanted.due for waiter in waiting),
    )
