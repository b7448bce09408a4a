"""A model of the registry in the pool: its entry and the next one, how its engines failed, and what it shows of itself.

Where it runs is in `places`, and which requests wait for it in `dispatcher`.
"""

import asyncio
import itertools
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from orchestrator.pool.dispatch import Dispatcher, LeaseRequest
from orchestrator.pool.errors import ModelBroken, ModelUnavailable, UnknownModel
from orchestrator.pool.machine import Topology
from orchestrator.pool.places import Places
from orchestrator.pool.policy import ModelView
from orchestrator.pool.prompts import ComputedPrompts
from orchestrator.pool.remote.client import RemoteModel
from orchestrator.pool.status import ModelState, ModelStatus, ServerStatus
from orchestrator.registry.models import ModelEntry

MAX_FAILURES: Final = 3
FAILURE_WINDOW: Final = 60.0  # A model whose engines failed MAX_FAILURES times within these seconds is broken.
MAX_FAILED_LOADS: Final = 9  # After this many failed loads in a row, requests no longer wait.
_RETIRING: Final = "the registry has changed: its engine ends when no request uses it any more"
_PROBE_SECONDS: Final = 1.0  # after which to look again at a server that one request is trying


@dataclass(slots=True, eq=False)
class Failures:
    """How the engines of a model failed, and so whether it is broken. Times are the event loop's."""

    model: str
    last: str | None = None  # the reason of the last one, which need not be the model's fault
    times: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_FAILURES))
    loads: int = 0  # that failed in a row
    lasting: bool = False  # the last load failed for a lasting reason, such as a missing file

    def note(self, now: float, reason: str) -> None:
        self.times.append(now)
        self.last = reason

    def note_load(self, now: float, reason: str, *, lasting: bool) -> None:
        """Note that a load failed."""
        self.note(now, reason)
        self.loads += 1
        self.lasting = lasting

    def note_loaded(self) -> None:
        self.loads, self.lasting = 0, False

    @property
    def hopeless(self) -> bool:
        """Whether the next load will probably fail, so that no request waits for it."""
        return self.lasting or self.loads >= MAX_FAILED_LOADS

    def broken_for(self, now: float) -> float:
        """Return the seconds until a broken model is tried again; 0 if it is not broken."""
        if len(self.times) < MAX_FAILURES:
            return 0.0
        return max(0.0, self.times[0] + FAILURE_WINDOW - now)

    def error(self, now: float) -> ModelBroken:
        """Return what its requests get that no longer wait."""
        seconds = self.broken_for(now)
        how = f"its engine failed {MAX_FAILURES} times within {FAILURE_WINDOW:.0f} s"
        if self.loads >= MAX_FAILED_LOADS:
            how = f"it could not be loaded {self.loads} times in a row"
        elif self.lasting:
            how = "it cannot be loaded"
        when = f"next try in {math.ceil(seconds)} s" if seconds else "the next request tries it again"
        message = f"model {self.model} is broken: {how}; {when}; the last time: {self.last}"
        return ModelBroken(self.model, message, retry_seconds=seconds, lasting=self.hopeless)


@dataclass(slots=True, eq=False)
class ManagedModel:
    places: Places
    dispatcher: Dispatcher
    failures: Failures
    pinned: bool  # neither evicted nor unloaded when idle
    prompts: ComputedPrompts = field(default_factory=ComputedPrompts)
    retiring: bool = False  # the registry has changed: its engines end and take no new requests
    # the entry to adopt when a retiring model's engines have ended; None removes the model
    successor: ModelEntry | None = None
    resting: int = 0  # requests that wait until a broken model is tried again
    # Set, and then replaced, when resting requests need not wait: the entry changed, or the pool closed.
    reopened: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def of(cls, entry: ModelEntry, topology: Topology, others: Mapping[str, Topology] | None = None) -> "ManagedModel":
        """Return a model without engines. `others` are the other machines of a cluster; None without a cluster."""
        places = Places(entry)
        places.adopt(entry)
        places.arrange(topology, others)
        return cls(places, Dispatcher(places), Failures(entry.id), pinned=entry.residency == "hot")

    @property
    def entry(self) -> ModelEntry:
        return self.places.entry

    def retire(self, successor: ModelEntry | None) -> None:
        """Let its engines end when unused; then adopt `successor`, or remove the model."""
        self.retiring, self.successor = True, successor
        for replica in self.places.replicas:
            replica.preload_since, replica.leaving = None, replica.state != "absent"
        if successor is None:
            self.reopen()

    async def rest(self, seconds: float) -> None:
        """Return after this many seconds, or as soon as `reopen` is called."""
        self.resting += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.reopened.wait()
        finally:
            self.resting -= 1

    def reopen(self) -> None:
        self.reopened.set()
        self.reopened = asyncio.Event()

    def update(self, entry: ModelEntry) -> None:
        """Adopt an entry that is loaded in the same way as the current one."""
        if entry.residency != self.entry.residency:
            self.pinned = entry.residency == "hot"
        self.retiring, self.successor = False, None
        self.places.adopt(entry)

    def become(self, entry: ModelEntry, topology: Topology, others: Mapping[str, Topology] | None) -> None:
        """Adopt an entry that is loaded differently, while there is no engine. Requests keep waiting."""
        self.update(entry)
        self.places.arrange_afresh(topology, others)
        self.failures = Failures(entry.id)
        self.reopen()

    def preload(self, now: float) -> None:
        """Have a HOT model loaded although no request waits for it, unless it has been unpinned."""
        if not (self.entry.residency == "hot" and self.pinned and self.why_not is None):
            return
        replicas = self.places.replicas
        coming = sum(replica.state != "absent" or replica.preload_since is not None for replica in replicas)
        absent = (replica for replica in replicas if replica.state == "absent" and replica.preload_since is None)
        for replica in itertools.islice(absent, max(0, self.places.least - coming)):
            replica.preload_since = now

    @property
    def might_load(self) -> bool:
        """Whether the policy may load another engine, so that it needs the bytes of one."""
        replicas = self.places.replicas
        preloads = any(replica.preload_since is not None for replica in replicas)
        waiting = bool(self.dispatcher.waiting)
        return waiting or preloads or (len(replicas) > 1 and self.places.loaded_or_loading)

    @property
    def why_not(self) -> str | None:
        return self.entry.why_not or self.places.misplaced

    def has_other(self, server: RemoteModel, request: LeaseRequest, now: float) -> bool:
        """Whether another replica than `server` can carry out a request."""
        others = (other.ready for other in self.dispatcher.servers_for(request) if other is not server)
        return any(others) or self._may_run_here(request, now)

    def can_do_without_engine(self, request: LeaseRequest) -> bool:
        """Whether a request for which no engine can be loaded may still wait for a server."""
        return request.here and not self.entry.is_remote and bool(self.dispatcher.servers_for(request))

    def _may_run_here(self, request: LeaseRequest, now: float) -> bool:
        possible = request.here and not self.entry.is_remote and not self.places.misplaced
        return possible and not self.failures.broken_for(now)

    def view(self, needed: int, on_disk: Callable[[str], bool]) -> ModelView:
        """Return what the policy decides by.

        `needed` is the bytes of another engine. `on_disk` returns whether a machine has the model's files.
        """
        places, (demand, overflow) = self.places, self.dispatcher.demand()
        present = [replica for replica in places.replicas if replica.state != "absent"]
        pinned = present[: max(1, places.least)] if self.pinned else []  # those that a cluster has in addition may stop
        return ModelView(
            slots=self.entry.slots,
            instances=tuple(
                replica.view(replica in pinned, needed, on_disk(replica.machine)) for replica in places.replicas
            ),
            demand=None if self.retiring else demand,
            served=bool(places.ready_servers) and not self.retiring,
            overflow=overflow,
            least=places.least,
            most=places.most,
        )

    def check(self, now: float, request: LeaseRequest) -> None:
        """Raise UnknownModel, ModelUnavailable or ModelBroken if neither engines nor servers take a request now."""
        if self.retiring and self.successor is None:
            raise UnknownModel(self.entry.id, f"model {self.entry.id} is no longer in the registry")
        if self.entry.why_not is not None:
            raise ModelUnavailable(self.entry.id, self.entry.why_not)
        if self._may_run_here(request, now):
            return
        if servers := self.dispatcher.servers_for(request):
            raise self._resting(servers, now)
        if self.places.misplaced is not None:
            raise ModelUnavailable(self.entry.id, self.places.misplaced)
        raise self.failures.error(now)

    def _resting(self, servers: Sequence[RemoteModel], now: float) -> ModelBroken:
        seconds = min(server.open_seconds(now) or _PROBE_SECONDS for server in servers)
        reasons = "; ".join(filter(None, (server.why_resting(now) for server in servers)))
        lasting = all(server.hopeless for server in servers)
        message = f"model {self.entry.id}: none of its servers answers: {reasons}"
        return ModelBroken(self.entry.id, message, retry_seconds=seconds, lasting=lasting)

    def status(self, now: float) -> ModelStatus:
        instances = tuple(replica.status() for replica in self.places.replicas)
        running = [replica for replica in instances if replica.pid is not None]
        servers = tuple(server.status(now) for server in self.places.servers)
        at_servers = sum(server.requests for server in servers)
        active_there = sum(server.active for server in servers)
        waiting = len(self.dispatcher.waiting) + self.resting
        return ModelStatus(
            model=self.entry.id,
            residency=self.entry.residency,
            pinned=self.pinned,
            state=self._state(now),
            bytes=sum(replica.bytes for replica in instances),
            waiting=waiting + at_servers - active_there,
            waiting_batch=sum(not waiter.request.interactive for waiter in self.dispatcher.waiting),
            requests=waiting + at_servers + sum(replica.requests for replica in instances),
            active=active_there + sum(replica.active for replica in instances),
            threads=sum(replica.threads or 0 for replica in running) if running else None,
            pid=running[0].pid if running else None,
            reason=self._reason(now, servers),
            instances=instances,
            servers=servers,
        )

    def _reason(self, now: float, servers: Sequence[ServerStatus]) -> str | None:
        if self.retiring:
            return _RETIRING
        if self.why_not is not None:
            return self.why_not
        if self.entry.is_remote:
            return next((server.reason for server in servers if server.reason), None)
        if not self.places.replicas:
            return f"none of its nodes has joined: {', '.join(self.entry.nodes)}"
        if self.failures.broken_for(now) > 0 and not self.places.loaded_or_loading:
            return str(self.failures.error(now))
        return self.failures.last

    def _state(self, now: float) -> ModelState:
        states = {replica.state for replica in self.places.replicas}
        if "ready" in states:
            return "ready"
        if "loading" in states:
            return "loading"
        if self.entry.is_remote and self.why_not is None:
            # A request that tries a server shows that it may get others soon.
            return "broken" if all(server.open_seconds(now) for server in self.places.servers) else "ready"
        if self.dispatcher.waiting or any(replica.preload_since is not None for replica in self.places.replicas):
            return "waiting"
        if "stopping" in states:
            return "stopping"
        if self.why_not is not None:
            return "unavailable"
        return "broken" if self.failures.broken_for(now) > 0 else "unloaded"
