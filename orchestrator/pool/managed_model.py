"""The pool's state of one model: its replicas, the requests that use them or wait, and how its engines have failed."""

import asyncio
import heapq
import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from orchestrator.pool.errors import ModelBroken, ModelUnavailable, UnknownModel
from orchestrator.pool.handle import EngineHandle
from orchestrator.pool.placement import ReplicaCandidate, ReplicaId, Topology, choose_replica, nodes_for
from orchestrator.pool.policy import Demand, ModelView, ReplicaState, ReplicaView
from orchestrator.pool.prefix_hashes import PrefixHashes, SeenPrefixes
from orchestrator.pool.status import ModelState, ModelStatus, ReplicaStatus
from registry.models import ModelEntry

MAX_FAILURES: Final = 3
FAILURE_WINDOW: Final = 60.0
"""A model whose engines failed MAX_FAILURES times within so many seconds counts as broken."""
MAX_FAILED_LOADS: Final = 9
"""Requests no longer wait for a model that could not be loaded so many times in a row."""
_RETIRING: Final = "the registry has changed: its engine ends when no request uses it any more"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRequest:
    """What a request says of itself: its class, when it should be done (in the event loop's time), how it begins."""

    interactive: bool = True
    due: float = 0.0
    prefix_hashes: PrefixHashes = ()


@dataclass(slots=True, eq=False)
class Waiter:
    """A request that waits for an engine since `since`. `granted` gets the replica that is leased to it."""

    wanted: LeaseRequest
    since: float
    granted: "asyncio.Future[Replica]"


@dataclass(slots=True, eq=False)
class Replica:
    """One replica of a model, whether it has an engine now or not. Times are the event loop's."""

    replica_id: ReplicaId
    node: int | None = None
    state: ReplicaState = "absent"
    bytes: int = 0
    """What it holds of the budget; 0 while it is absent."""
    engine: EngineHandle | None = None
    asked: float | None = None
    """Since when it is to be loaded although no request waits for it; None if it is not."""
    draining: bool = False
    """Whether it takes no new requests, because a request that has waited too long needs its memory."""
    leaving: bool = False
    """Whether it takes no new requests and is stopped as soon as it is idle."""
    leases: int = 0
    """How many requests use it."""
    active: int = 0
    """How many of them are generating."""
    threads: int = 0
    begun_at: float = 0.0
    loaded_at: float = 0.0
    last_used: float = 0.0
    seen: SeenPrefixes = field(default_factory=SeenPrefixes)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while it is absent."""

    def __post_init__(self) -> None:
        self.gone.set()

    @property
    def serves(self) -> bool:
        """Whether it takes new requests."""
        alive = self.engine is not None and not self.engine.died.is_set()
        return alive and self.state == "ready" and not self.draining and not self.leaving

    def begin(self, reserved: int, now: float) -> None:
        """Note that it is being loaded, with `reserved` bytes of the budget."""
        self.state, self.bytes, self.asked, self.begun_at = "loading", reserved, None, now
        self.gone.clear()

    def loaded(self, engine: EngineHandle, threads: int, now: float) -> None:
        """Note that it is loaded: its engine, and with how many threads that computes."""
        self.state, self.engine, self.threads = "ready", engine, threads
        self.loaded_at = self.last_used = now

    def vacate(self) -> None:
        """Note that its process has ended, or was never started."""
        self.state, self.bytes, self.engine, self.threads = "absent", 0, None, 0
        self.draining = self.leaving = False
        self.seen = SeenPrefixes()
        self.gone.set()

    def grant(self, prefix_hashes: PrefixHashes) -> None:
        """Lease it to a request."""
        self.leases += 1
        self.seen.add(prefix_hashes)

    def view(self, pinned: bool, needed: int) -> ReplicaView:
        """Describe it for the policy. `needed` is how many bytes it would take if it is absent.

        One that is leaving no longer counts as pinned, so that its bytes can be used for other models.
        """
        return ReplicaView(
            replica_id=self.replica_id,
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
        """Describe it for the API and the command line."""
        return ReplicaStatus(
            number=self.replica_id[1],
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
    """One model of the registry."""

    entry: ModelEntry
    instances: tuple[Replica, ...]
    pinned: bool
    """Whether it is neither evicted nor unloaded when idle."""
    misplaced: str | None = None
    """Why it cannot run on this machine, or None."""
    retiring: bool = False
    """Whether the registry has changed, so that its engines end and take no new requests."""
    successor: ModelEntry | None = None
    """The entry that a retiring model gets when its engines have ended; None if it is then removed."""
    waiting: dict[Waiter, None] = field(default_factory=dict)
    """The requests that wait for an engine, in the order of their arrival."""
    resting: int = 0
    """How many requests wait until a broken model is tried again."""
    reopened: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and then replaced, when those need not wait any longer: its entry has changed, or the pool is closed."""
    failures: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_FAILURES))
    failed_loads: int = 0
    """How many loads have failed in a row."""
    unloadable: bool = False
    """Whether the last load failed for a reason that stays, such as a missing file."""
    last_failure: str | None = None

    @classmethod
    def of(cls, entry: ModelEntry, topology: Topology) -> "ManagedModel":
        """Return the state of a model that is not loaded, with a replica for each engine that it may have."""
        known = [node.id for node in topology.nodes]
        misplaced = None
        if entry.numa is not None and entry.numa not in known:
            listed = ", ".join(map(str, known))
            misplaced = f"model {entry.id} is bound to NUMA node {entry.numa}; accepted on this machine: {listed}"
        nodes = nodes_for(topology, entry.instances, entry.numa if misplaced is None else None)
        instances = tuple(Replica((entry.id, number), node) for number, node in enumerate(nodes))
        return cls(entry, instances, entry.residency == "hot", misplaced)

    def retire(self, successor: ModelEntry | None) -> None:
        """Let its engines end when no request uses them any more, and then adopt `successor`, or remove it if None."""
        self.retiring, self.successor = True, successor
        for one in self.instances:
            one.asked, one.leaving = None, one.state != "absent"
        if successor is None:
            self.reopen()

    def reopen(self) -> None:
        """Wake the requests that wait until it is tried again."""
        self.reopened.set()
        self.reopened = asyncio.Event()

    def update(self, entry: ModelEntry) -> None:
        """Adopt an entry that is loaded in the same way as the present one."""
        if entry.residency != self.entry.residency:
            self.pinned = entry.residency == "hot"
        self.entry, self.retiring, self.successor = entry, False, None

    def become(self, entry: ModelEntry, topology: Topology) -> None:
        """Adopt an entry that is loaded in another way, while there is no engine. Waiting requests go on waiting."""
        fresh = ManagedModel.of(entry, topology)
        self.instances, self.misplaced = fresh.instances, fresh.misplaced
        self.failures.clear()
        self.failed_loads, self.unloadable = 0, False
        self.last_failure = None
        self.update(entry)
        self.reopen()

    @property
    def absent(self) -> bool:
        """Whether none of its replicas has a process."""
        return all(one.state == "absent" for one in self.instances)

    @property
    def why_not(self) -> str | None:
        """Why it cannot be used, or None if it can."""
        return self.entry.why_not or self.misplaced

    @property
    def hot(self) -> bool:
        """Whether the registry says that it is always loaded."""
        return self.entry.residency == "hot"

    @property
    def coming(self) -> bool:
        """Whether it has an engine that is ready or being loaded."""
        return any(one.state in ("ready", "loading") for one in self.instances)

    @property
    def serves(self) -> bool:
        """Whether any of its replicas takes new requests."""
        return any(one.serves for one in self.instances)

    def choose(self, prefix_hashes: PrefixHashes) -> Replica | None:
        """Return the replica that serves a request now, or None if the request has to wait.

        As long as another replica may come, none gets more requests than it has slots: what waits inside an engine
        could not move to the other one any more.
        """
        candidates = (
            ReplicaCandidate(one.replica_id[1], one.leases, self.entry.slots, one.seen.match(prefix_hashes))
            for one in self.instances
            if one.serves and (self._complete or one.leases < self.entry.slots)
        )
        number = choose_replica(candidates)
        return None if number is None else self.instances[number]

    @property
    def _complete(self) -> bool:
        """Whether no further replica may come."""
        return all(one.state not in ("absent", "loading") for one in self.instances)

    def serve(self) -> None:
        """Lease replicas to the waiting requests, as far as there are any that take requests.

        Interactive requests go before those of a batch, then goes what is due first, then what has waited longest.
        """
        free = sum(max(0, self.entry.slots - one.leases) for one in self.instances if one.serves)
        most = len(self.waiting) if self._complete else free
        for waiter in heapq.nsmallest(most, self.waiting, key=_turn):
            replica = self.choose(waiter.wanted.prefix_hashes)
            if replica is None:
                return
            del self.waiting[waiter]
            if not waiter.granted.done():
                replica.grant(waiter.wanted.prefix_hashes)
                waiter.granted.set_result(replica)

    def refuse(self, error: Exception) -> None:
        """Let all waiting requests fail with `error`."""
        for waiter in tuple(self.waiting):
            del self.waiting[waiter]
            if not waiter.granted.done():
                waiter.granted.set_exception(error)

    def view(self, needed: int) -> ModelView:
        """Describe it for the policy; an engine of it needs `needed` bytes."""
        return ModelView(
            slots=self.entry.slots,
            instances=tuple(one.view(self.pinned, needed) for one in self.instances),
            demand=_demand(self.waiting) if self.waiting and not self.retiring else None,
        )

    def failed(self, now: float, reason: str) -> None:
        """Note that an engine died."""
        self.failures.append(now)
        self.last_failure = reason

    def load_failed(self, now: float, reason: str, *, lasting: bool) -> None:
        """Note that an engine could not be started, and whether for a `lasting` reason."""
        self.failed(now, reason)
        self.failed_loads += 1
        self.unloadable = lasting

    def loaded(self) -> None:
        """Note that an engine was started."""
        self.failed_loads, self.unloadable = 0, False

    @property
    def hopeless(self) -> bool:
        """Whether nothing suggests that the next load succeeds, so that no request waits for one while it rests."""
        return self.unloadable or self.failed_loads >= MAX_FAILED_LOADS

    def broken_for(self, now: float) -> float:
        """Return for how many seconds the model still counts as broken; 0 if it does not."""
        if len(self.failures) < MAX_FAILURES:
            return 0.0
        return max(0.0, self.failures[0] + FAILURE_WINDOW - now)

    def check(self, now: float) -> None:
        """Raise UnknownModel, ModelUnavailable or ModelBroken if it cannot be loaded now."""
        if self.retiring and self.successor is None:
            raise UnknownModel(self.entry.id, f"model {self.entry.id} is no longer in the registry")
        if self.why_not is not None:
            raise ModelUnavailable(self.entry.id, self.why_not)
        if self.broken_for(now) > 0:
            raise self.broken(now)

    def broken(self, now: float) -> ModelBroken:
        """Return the error that says how it has failed, and when it is tried again."""
        seconds = self.broken_for(now)
        how = f"its engine failed {MAX_FAILURES} times within {FAILURE_WINDOW:.0f} s"
        if self.failed_loads >= MAX_FAILED_LOADS:
            how = f"it could not be loaded {self.failed_loads} times in a row"
        elif self.unloadable:
            how = "it cannot be loaded"
        when = f"next try in {math.ceil(seconds)} s" if seconds else "the next request tries it again"
        what = f"model {self.entry.id} is broken: {how}; {when}; the last time: "
        return ModelBroken(self.entry.id, f"{what}{self.last_failure}", retry_seconds=seconds, lasting=self.hopeless)

    def status(self, now: float) -> ModelStatus:
        """Describe it for the API and the command line."""
        instances = tuple(one.status() for one in self.instances)
        running = [one for one in instances if one.pid is not None]
        return ModelStatus(
            model=self.entry.id,
            residency=self.entry.residency,
            pinned=self.pinned,
            state=self._state(now),
            bytes=sum(one.bytes for one in instances),
            waiting=len(self.waiting) + self.resting,
            requests=len(self.waiting) + self.resting + sum(one.requests for one in instances),
            active=sum(one.active for one in instances),
            threads=sum(one.threads or 0 for one in running) if running else None,
            pid=running[0].pid if running else None,
            reason=self._reason(now),
            instances=instances,
        )

    def _reason(self, now: float) -> str | None:
        if self.retiring:
            return _RETIRING
        if self.why_not is not None:
            return self.why_not
        return str(self.broken(now)) if self.broken_for(now) > 0 and not self.coming else self.last_failure

    def _state(self, now: float) -> ModelState:
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


def _turn(waiter: Waiter) -> tuple[bool, float, float]:
    """Return what waiting requests are served by, the smallest first."""
    return not waiter.wanted.interactive, waiter.wanted.due, waiter.since


def _demand(waiting: Collection[Waiter]) -> Demand:
    return Demand(
        since=min(waiter.since for waiter in waiting),
        interactive_since=min((waiter.since for waiter in waiting if waiter.wanted.interactive), default=math.inf),
        due=min(waiter.wanted.due for waiter in waiting),
        count=len(waiting),
    )
