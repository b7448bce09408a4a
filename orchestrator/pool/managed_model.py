"""The pool's state of one model: its replicas, its requests, what its engines have computed and how they failed."""

import asyncio
import dataclasses
import heapq
import itertools
import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from orchestrator.engine.kv.prefix_value import LEAST_TOKENS
from orchestrator.pool.errors import ModelBroken, ModelUnavailable, UnknownModel
from orchestrator.pool.handle import EngineHandle
from orchestrator.pool.machine import Topology, nodes_for
from orchestrator.pool.policy import (
    ANSWER_TOKENS,
    BLOCK_TOKENS,
    Demand,
    ModelView,
    Offer,
    Pace,
    ReplicaCandidate,
    ReplicaId,
    ReplicaState,
    ReplicaView,
    choose_replica,
)
from orchestrator.pool.prompts import ComputedPrompts, PrefixHash, PrefixHashes, SeenPrefixes
from orchestrator.pool.remote.client import RemoteModel
from orchestrator.pool.shipping import PAUSE_SECONDS, Links, Shipment
from orchestrator.pool.status import ModelState, ModelStatus, ReplicaStatus, ServerStatus
from orchestrator.registry.forms import HEAD
from orchestrator.registry.models import ModelEntry

MAX_FAILURES: Final = 3
FAILURE_WINDOW: Final = 60.0  # A model whose engines failed MAX_FAILURES times in so many seconds is broken.
MAX_FAILED_LOADS: Final = 9  # After so many failed loads in a row, requests no longer wait.
_RETIRING: Final = "the registry has changed: its engine ends when no request uses it any more"
_MOST_PLANNED: Final = 64  # waiting requests for which a place is looked for at a time
_PROBE_SECONDS: Final = 1.0  # after which to look again at a server that one request is trying
# Seconds of extra slack for batch requests, so that later interactive ones need not queue behind a whole fan-out. The
# engine bounds the value of slack: this is worth 27 seconds, then an older batch request goes first.
BATCH_SLACK: Final = 300.0
_ANSWERS: Final = 20  # in whose mean an answer counts


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRequest:
    interactive: bool = True
    due: float = 0.0  # event loop time
    prefix_hashes: PrefixHashes = ()
    here: bool = True  # an engine can carry it out
    servers: bool = False  # a server can
    tools: bool = False  # it has tools, which not all servers take
    refused_by: frozenset[RemoteModel] = frozenset()


ANY_REQUEST: Final = LeaseRequest(servers=True)


@dataclass(slots=True, eq=False)
class Waiter:
    """A waiting request. `granted` gets what serves it."""

    request: LeaseRequest
    since: float
    granted: "asyncio.Future[Replica | RemoteModel]"


@dataclass(slots=True, eq=False)
class Replica:
    """One replica of a model, with or without an engine. Times are the event loop's."""

    replica_id: ReplicaId
    node: int | None = None
    machine: str = ""  # of a cluster; empty for this one
    state: ReplicaState = "absent"
    bytes: int = 0  # of the budget; 0 while absent
    engine: EngineHandle | None = None
    asked: float | None = None  # since when it should be loaded although no request waits for it
    draining: bool = False  # takes no new requests, because a request that has waited too long needs its memory
    leaving: bool = False  # takes no new requests, and stops as soon as it is idle
    pace: Pace | None = None  # of the engine; None unless other machines or servers run the model, too
    leases: int = 0  # requests that use it
    active: int = 0  # how many of them are generating
    threads: int = 0
    begun_at: float = 0.0
    loaded_at: float = 0.0
    last_used: float = 0.0
    seen: SeenPrefixes = field(default_factory=SeenPrefixes)
    # Cells that will come from other machines, by the hash of the last block of each prefix.
    coming: dict[PrefixHash, Shipment] = field(default_factory=dict)
    gone: asyncio.Event = field(default_factory=asyncio.Event)  # set while absent

    def __post_init__(self) -> None:
        self.gone.set()

    @property
    def serves(self) -> bool:
        alive = self.engine is not None and not self.engine.died.is_set()
        return alive and self.state == "ready" and not self.draining and not self.leaving

    def begin(self, reserved: int, now: float) -> None:
        self.state, self.bytes, self.asked, self.begun_at = "loading", reserved, None, now
        self.gone.clear()

    def loaded(self, engine: EngineHandle, threads: int, now: float) -> None:
        self.state, self.engine, self.threads = "ready", engine, threads
        self.loaded_at = self.last_used = now

    def vacate(self) -> None:
        self.state, self.bytes, self.engine, self.threads = "absent", 0, None, 0
        self.draining = self.leaving = False
        self.pace = None
        self.seen = SeenPrefixes()
        self.coming = {}
        self.gone.set()

    def grant(self, prefix_hashes: PrefixHashes) -> None:
        self.leases += 1
        if prefix_hashes:
            self.seen.add(prefix_hashes)

    def note_arrival(self, last: PrefixHash, shipment: Shipment) -> None:
        """Let requests no longer wait for cells, which have come or will not come."""
        if self.coming.get(last) is shipment:
            del self.coming[last]

    def view(self, pinned: bool, needed: int, on_disk: bool) -> ReplicaView:
        """`needed` is the bytes it would take if it is absent. `on_disk`: its machine has the model's files."""
        return ReplicaView(
            replica_id=self.replica_id,
            bytes=needed if self.state == "absent" else self.bytes,
            state=self.state,
            node=self.node,
            machine=self.machine,
            on_disk=on_disk,
            # A leaving replica is not pinned, so that other models can use its bytes.
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
        return ReplicaStatus(
            number=self.replica_id[1],
            node=self.node,
            machine=self.machine,
            state=self.state,
            bytes=self.bytes,
            requests=self.leases,
            active=self.active,
            threads=self.threads if self.engine is not None else None,
            pid=self.engine.info.pid if self.engine is not None else None,
        )


@dataclass(slots=True, eq=False)
class ManagedModel:
    entry: ModelEntry
    instances: tuple[Replica, ...]
    pinned: bool  # neither evicted nor unloaded when idle
    servers: tuple[RemoteModel, ...] = ()
    left_servers: list[RemoteModel] = field(default_factory=list)  # that the registry has no more, to be retired
    misplaced: str | None = None  # why it cannot run on this machine
    retiring: bool = False  # the registry has changed: its engines end and take no new requests
    # the entry to adopt when a retiring model's engines have ended; None removes the model
    successor: ModelEntry | None = None
    waiting: dict[Waiter, None] = field(default_factory=dict)  # in order of arrival
    resting: int = 0  # requests that wait until a broken model is tried again
    # Set, and then replaced, when resting requests need not wait: the entry changed, or the pool closed.
    reopened: asyncio.Event = field(default_factory=asyncio.Event)
    failures: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_FAILURES))
    failed_loads: int = 0  # in a row
    unloadable: bool = False  # the last load failed for a lasting reason, such as a missing file
    last_failure: str | None = None
    prompts: ComputedPrompts = field(default_factory=ComputedPrompts)
    answer_tokens: float = ANSWER_TOKENS  # the mean of answers, of which later ones count more
    links: Links | None = None  # between the machines of a cluster
    # Until when no cells are shipped from one machine to another, by the event loop's time.
    paused: dict[tuple[str, str], float] = field(default_factory=dict)
    barred: dict[str, str] = field(default_factory=dict)  # machines of the cluster that cannot have it, and why

    @classmethod
    def of(cls, entry: ModelEntry, topology: Topology, others: Mapping[str, Topology] | None = None) -> "ManagedModel":
        """Return a model without engines. `others` are the other machines of a cluster; None without a cluster."""
        model = cls(entry, (), entry.residency == "hot")
        model.arrange(topology, others)
        model.arrange_servers()
        return model

    def arrange_servers(self) -> None:
        """Have the servers of the entry. Those that it has no more end their requests."""
        before = {server.endpoint: server for server in self.servers}
        fresh = (endpoint for endpoint in self.entry.servers if endpoint not in before)
        servers = before | {endpoint: RemoteModel(self.entry, endpoint) for endpoint in fresh}
        self.servers = tuple(servers[endpoint] for endpoint in self.entry.servers)
        for server in self.servers:
            server.entry = self.entry
        self.left_servers += (before[endpoint] for endpoint in before if endpoint not in self.entry.servers)

    def arrange(self, topology: Topology, others: Mapping[str, Topology] | None) -> None:
        """Have a replica for each place that there is now. Those of other places stay until their engines end."""
        if self.entry.is_remote:
            self.instances, self.misplaced = (), None
            return
        machines = {**({"": topology} if runs_here(self.entry) else {}), **dict(sorted((others or {}).items()))}
        places = [
            (machine, node)
            for machine, own in machines.items()
            if machine not in self.barred
            for node in _nodes(self.entry, machine, own)
        ]
        before = {(replica.machine, replica.node): replica for replica in self.instances}
        numbers = itertools.count(max((replica.replica_id[1] for replica in self.instances), default=-1) + 1)
        leaving = [replica for place, replica in before.items() if place not in places and replica.state != "absent"]
        for replica in leaving:
            replica.leaving = True
        self.instances = (
            *(before.get(place) or Replica((self.entry.id, next(numbers)), place[1], place[0]) for place in places),
            *leaving,
        )
        self.misplaced = self._why_no_place(topology, others)

    def _why_no_place(self, topology: Topology, others: Mapping[str, Topology] | None) -> str | None:
        # Requests wait for nodes that may still join.
        entry = self.entry
        if runs_here(entry) and entry.numa is not None and not _nodes(entry, "", topology):
            listed = ", ".join(str(node.id) for node in topology.nodes)
            return f"model {entry.id} is bound to NUMA node {entry.numa}; accepted on this machine: {listed}"
        if others is None and not runs_here(entry):
            listed = ", ".join(entry.nodes)
            return f"model {entry.id} runs on nodes {listed}; accepted without a cluster: {HEAD}, or no key `nodes`"
        if self.barred and not self.instances:
            return f"model {entry.id} can run nowhere: {'; '.join(self.barred.values())}"
        return None

    def bar(self, machine: str, reason: str) -> None:
        """Do not load it on this machine of the cluster again, until the machine or the entry changes."""
        self.barred[machine] = reason

    def replica(self, number: int) -> Replica:
        return next(replica for replica in self.instances if replica.replica_id[1] == number)

    @property
    def least(self) -> int:
        """The replicas that are loaded as soon as one is: those of the first machine, and as many as the entry says."""
        limits = self.entry.replicas
        if limits is not None:
            return min(limits.min, len(self.instances))
        first = self.instances[0].machine if self.instances else ""
        return sum(replica.machine == first for replica in self.instances) if self.hot else 1

    @property
    def most(self) -> int:
        return len(self.instances) if self.entry.replicas is None else self.entry.replicas.max

    def retire(self, successor: ModelEntry | None) -> None:
        """Let its engines end when unused; then adopt `successor`, or remove the model."""
        self.retiring, self.successor = True, successor
        for replica in self.instances:
            replica.asked, replica.leaving = None, replica.state != "absent"
        if successor is None:
            self.reopen()

    def reopen(self) -> None:
        self.reopened.set()
        self.reopened = asyncio.Event()

    def update(self, entry: ModelEntry) -> None:
        """Adopt an entry that is loaded in the same way as the current one."""
        if entry.residency != self.entry.residency:
            self.pinned = entry.residency == "hot"
        self.entry, self.retiring, self.successor = entry, False, None
        self.arrange_servers()

    def become(self, entry: ModelEntry, topology: Topology, others: Mapping[str, Topology] | None = None) -> None:
        """Adopt an entry that is loaded differently, while there is no engine. Requests keep waiting."""
        fresh = ManagedModel(entry, (), self.pinned)
        fresh.arrange(topology, others)
        self.instances, self.misplaced, self.barred = fresh.instances, fresh.misplaced, {}
        self.failures.clear()
        self.failed_loads, self.unloadable = 0, False
        self.last_failure = None
        self.update(entry)
        self.reopen()

    @property
    def absent(self) -> bool:
        return all(replica.state == "absent" for replica in self.instances)

    @property
    def why_not(self) -> str | None:
        return self.entry.why_not or self.misplaced

    @property
    def hot(self) -> bool:
        return self.entry.residency == "hot"

    @property
    def coming(self) -> bool:
        return any(replica.state in ("ready", "loading") for replica in self.instances)

    def serves(self, request: LeaseRequest) -> bool:
        """Whether something can carry out a request without being loaded, perhaps after others."""
        here = request.here and any(replica.serves for replica in self.instances)
        return here or any(server.ready for server in self.servers_for(request))

    @property
    def resident(self) -> bool:
        return any(replica.serves for replica in self.instances) or any(server.ready for server in self.servers)

    def servers_for(self, request: LeaseRequest) -> list[RemoteModel]:
        """Return the servers that can carry out a request, also if they rest."""
        if not request.servers:
            return []
        refusing = request.refused_by
        usable = [server for server in self.servers if not server.endpoint.unavailable and server not in refusing]
        with_tools = [server for server in usable if server.takes_tools] if request.tools else usable
        return with_tools or usable

    def has_other(self, server: RemoteModel, request: LeaseRequest, now: float) -> bool:
        """Whether another replica than `server` can carry out a request."""
        others = (other.ready for other in self.servers_for(request) if other is not server)
        return any(others) or self._may_run_here(request, now)

    def can_do_without_engine(self, request: LeaseRequest) -> bool:
        """Whether a request for which no engine can be loaded may still wait for a server."""
        return request.here and not self.entry.is_remote and bool(self.servers_for(request))

    def _may_run_here(self, request: LeaseRequest, now: float) -> bool:
        return request.here and not self.entry.is_remote and not self.misplaced and not self.broken_for(now)

    def choose(self, request: LeaseRequest) -> Replica | RemoteModel | None:
        """Return what serves a request now, or None if the request must wait."""
        if not (servers := self.servers_for(request)):
            return self._choose_here(request.prefix_hashes)
        if self.entry.is_remote and len(self.servers) == 1:  # it keeps requests waiting itself
            return servers[0]
        if self.waiting and self._served_waiters():  # in their order
            return None
        place = self._best(request, self._ready_places(), {})
        return place if place is not None and self._free_slots(place) else None

    def _ready_places(self) -> dict[Replica | RemoteModel, tuple[int, Pace | None]]:
        # With the requests that each answers at a time, and its pace.
        here = {replica: (self.entry.slots, replica.pace) for replica in self.instances if replica.serves}
        return here | {server: (server.at_once, server.pace) for server in self.servers if server.ready}

    def _best(
        self,
        request: LeaseRequest,
        ready: Mapping[Replica | RemoteModel, tuple[int, Pace | None]],
        planned: Mapping[Replica | RemoteModel, int],
    ) -> Replica | RemoteModel | None:
        # Where the request ends first after those that are `planned` for each place.
        able = self.servers_for(request) if request.tools or request.refused_by else self.servers
        places = [place for place in ready if (request.here if isinstance(place, Replica) else place in able)]
        candidates = []
        for number, place in enumerate(places):
            slots, pace = ready[place]
            candidate = ReplicaCandidate(number, place.leases, slots, 0, pace)
            if isinstance(place, Replica):
                candidate = dataclasses.replace(self._candidate(place, request.prefix_hashes), number=number)
            requests = candidate.requests + planned.get(place, 0)
            candidates.append(dataclasses.replace(candidate, requests=requests))
        best = choose_replica(candidates, len(request.prefix_hashes), self.answer_tokens)
        return None if best is None else places[best]

    def _free_slots(self, place: Replica | RemoteModel) -> int:
        slots = place.slots if isinstance(place, RemoteModel) else self.entry.slots
        return max(0, slots - place.leases)

    def _choose_here(self, prefix_hashes: PrefixHashes) -> Replica | None:
        if len(self.instances) == 1:  # it is this one or none
            return self.instances[0] if self.instances[0].serves else None
        # While another replica may come, none gets more requests than slots: what waits inside an engine cannot move.
        candidates = (
            self._candidate(replica, prefix_hashes)
            for replica in self.instances
            if replica.serves and (self._complete or replica.leases < self.entry.slots)
        )
        number = choose_replica(candidates, len(prefix_hashes), self.answer_tokens)
        return None if number is None else self.replica(number)

    def _candidate(self, replica: Replica, prefix_hashes: PrefixHashes) -> ReplicaCandidate:
        held = replica.seen.match(prefix_hashes)
        return ReplicaCandidate(
            replica.replica_id[1],
            replica.leases,
            self.entry.slots,
            held,
            replica.pace,
            tuple(self._offers(replica, held, prefix_hashes)) if replica.pace is not None else (),
        )

    def _offers(self, target: Replica, held: int, prefix_hashes: PrefixHashes) -> Iterator[Offer]:
        if self.links is None or (len(prefix_hashes) - held) * BLOCK_TOKENS < LEAST_TOKENS:
            return
        now = asyncio.get_running_loop().time()
        for source in self.instances:
            ends = source.machine, target.machine
            if not source.serves or source.machine == target.machine or now < self.paused.get(ends, now):
                continue
            more = source.seen.match(prefix_hashes)
            if (more - held) * BLOCK_TOKENS >= LEAST_TOKENS:
                size = more * BLOCK_TOKENS * _token_bytes(self.entry)
                yield Offer(source.replica_id[1], more, self.links.seconds(*ends, size))

    def grant(self, place: Replica | RemoteModel, request: LeaseRequest) -> None:
        """Count a request that `place` serves from now on, and promise it cells that are better shipped."""
        if isinstance(place, RemoteModel):
            place.grant()
            return
        hashes, pace = request.prefix_hashes, place.pace
        candidate = self._candidate(place, hashes)
        offer = None if pace is None else candidate.prefill(pace, len(hashes))[1]
        if pace is not None and offer is not None:
            source = self.replica(offer.number)
            assert source.engine is not None, "a replica that serves has an engine"
            seconds = (offer.held - candidate.held) * BLOCK_TOKENS * pace.prompt_token
            shipment = Shipment(source.engine, source.machine, pace.prompt_token, seconds)
            place.coming.setdefault(hashes[offer.held - 1], shipment)
        place.grant(hashes)

    def pause(self, source: str, target: str) -> None:
        """Ship no cells from one machine to another for a while, because that has failed."""
        self.paused[source, target] = asyncio.get_running_loop().time() + PAUSE_SECONDS

    @property
    def _complete(self) -> bool:
        # no further replica may come
        states = [replica.state for replica in self.instances]
        return "loading" not in states and ("absent" not in states or len(states) - states.count("absent") >= self.most)

    def serve(self) -> None:
        """Lease replicas to waiting requests: interactive before batch, then by due time, then by age."""
        free = sum(self._free_slots(replica) for replica in self.instances if replica.serves)
        served = self._served_waiters()
        waiting = self._waiters_for_engines(served)
        for waiter in heapq.nsmallest(len(waiting) if self._complete else free, waiting, key=_turn):
            replica = self._choose_here(waiter.request.prefix_hashes)
            if replica is None:
                break
            self._grant(waiter, replica)
        if served:
            self._serve_anywhere(served)

    def _serve_anywhere(self, waiters: Iterable[Waiter]) -> None:
        # What waits at a server or inside an engine cannot move, so requests wait here until the place where they are
        # expected to end first, after those that come before them, has a free slot.
        planned: Counter[Replica | RemoteModel] = Counter()
        ready = self._ready_places()
        free = sum(map(self._free_slots, ready))
        for waiter in heapq.nsmallest(_MOST_PLANNED, waiters, key=_aged_turn) if free else ():
            if not free:
                return
            place = self._best(waiter.request, ready, planned)
            if place is not None and self._free_slots(place):
                self._grant(waiter, place)
                free -= 1
            elif place is not None:
                planned[place] += 1

    def _grant(self, waiter: Waiter, place: Replica | RemoteModel) -> None:
        del self.waiting[waiter]
        if not waiter.granted.done():
            self.grant(place, waiter.request)
            waiter.granted.set_result(place)

    def _served_waiters(self) -> dict[Waiter, None]:
        # Those for which a server is there, even if others come first; in order of arrival.
        ready = [server for server in self.servers if server.ready]
        if not ready:
            return {}

        def is_served(request: LeaseRequest) -> bool:
            if not request.servers or not (request.tools or request.refused_by):  # as nearly all
                return request.servers
            return any(server in ready for server in self.servers_for(request))

        return {waiter: None for waiter in self.waiting if is_served(waiter.request)}

    def _waiters_for_engines(self, served: Collection[Waiter]) -> list[Waiter]:
        return [waiter for waiter in self.waiting if waiter not in served and waiter.request.here]

    def note_answer(self, tokens: int) -> None:
        self.answer_tokens += (tokens - self.answer_tokens) / _ANSWERS

    @property
    def clustered(self) -> bool:
        """Whether machines of a cluster, or servers, have replicas."""
        return bool(self.servers) or any(replica.machine for replica in self.instances)

    @property
    def replicated(self) -> bool:
        return len(self.instances) + len(self.servers) > 1

    def refuse(self, error: Exception, *, only_here: bool = False) -> None:
        """End the waits of requests; if `only_here`, of those that wait for an engine."""
        for waiter in self._waiters_for_engines(self._served_waiters()) if only_here else tuple(self.waiting):
            del self.waiting[waiter]
            if not waiter.granted.done():
                waiter.granted.set_exception(error)

    def view(self, needed: int, on_disk: Callable[[str], bool] = lambda machine: True) -> ModelView:
        """`needed` is the bytes of another engine. `on_disk` returns whether a machine has the model's files."""
        present = [replica for replica in self.instances if replica.state != "absent"]
        pinned = present[: max(1, self.least)] if self.pinned else []  # those that a cluster has in addition may stop
        served = self._served_waiters()
        alone = self._waiters_for_engines(served)
        ready = [server for server in self.servers if server.ready]
        overflow = len(served) + sum(server.leases - server.slots for server in ready)
        return ModelView(
            slots=self.entry.slots,
            instances=tuple(
                replica.view(replica in pinned, needed, on_disk(replica.machine)) for replica in self.instances
            ),
            demand=_demand(alone) if alone and not self.retiring else None,
            served=bool(ready) and not self.retiring,
            overflow=max(0, overflow),
            least=self.least,
            most=self.most,
        )

    def failed(self, now: float, reason: str) -> None:
        self.failures.append(now)
        self.last_failure = reason

    def load_failed(self, now: float, reason: str, *, lasting: bool) -> None:
        self.failed(now, reason)
        self.failed_loads += 1
        self.unloadable = lasting

    def loaded(self) -> None:
        self.failed_loads, self.unloadable = 0, False

    @property
    def hopeless(self) -> bool:
        """Whether the next load will probably fail, so that no request waits for it."""
        return self.unloadable or self.failed_loads >= MAX_FAILED_LOADS

    def broken_for(self, now: float) -> float:
        """Return the seconds until a broken model is tried again; 0 if it is not broken."""
        if len(self.failures) < MAX_FAILURES:
            return 0.0
        return max(0.0, self.failures[0] + FAILURE_WINDOW - now)

    def check(self, now: float, request: LeaseRequest = ANY_REQUEST) -> None:
        """Raise UnknownModel, ModelUnavailable or ModelBroken if it can neither be loaded now nor a server be asked."""
        if self.retiring and self.successor is None:
            raise UnknownModel(self.entry.id, f"model {self.entry.id} is no longer in the registry")
        if self.entry.why_not is not None:
            raise ModelUnavailable(self.entry.id, self.entry.why_not)
        if self._may_run_here(request, now):
            return
        if servers := self.servers_for(request):
            raise self._resting(servers, now)
        if self.misplaced is not None:
            raise ModelUnavailable(self.entry.id, self.misplaced)
        raise self.broken(now)

    def _resting(self, servers: Sequence[RemoteModel], now: float) -> ModelBroken:
        seconds = min(server.open_seconds(now) or _PROBE_SECONDS for server in servers)
        reasons = "; ".join(filter(None, (server.why_resting(now) for server in servers)))
        lasting = all(server.hopeless for server in servers)
        message = f"model {self.entry.id}: none of its servers answers: {reasons}"
        return ModelBroken(self.entry.id, message, retry_seconds=seconds, lasting=lasting)

    def broken(self, now: float) -> ModelBroken:
        seconds = self.broken_for(now)
        how = f"its engine failed {MAX_FAILURES} times within {FAILURE_WINDOW:.0f} s"
        if self.failed_loads >= MAX_FAILED_LOADS:
            how = f"it could not be loaded {self.failed_loads} times in a row"
        elif self.unloadable:
            how = "it cannot be loaded"
        when = f"next try in {math.ceil(seconds)} s" if seconds else "the next request tries it again"
        message = f"model {self.entry.id} is broken: {how}; {when}; the last time: "
        return ModelBroken(self.entry.id, f"{message}{self.last_failure}", retry_seconds=seconds, lasting=self.hopeless)

    def status(self, now: float) -> ModelStatus:
        instances = tuple(replica.status() for replica in self.instances)
        running = [replica for replica in instances if replica.pid is not None]
        servers = tuple(server.status(now) for server in self.servers)
        at_servers = sum(server.requests for server in servers)
        active_there = sum(server.active for server in servers)
        return ModelStatus(
            model=self.entry.id,
            residency=self.entry.residency,
            pinned=self.pinned,
            state=self._state(now),
            bytes=sum(replica.bytes for replica in instances),
            waiting=len(self.waiting) + self.resting + at_servers - active_there,
            waiting_batch=sum(not waiter.request.interactive for waiter in self.waiting),
            requests=len(self.waiting) + self.resting + at_servers + sum(replica.requests for replica in instances),
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
        if not self.instances:
            return f"none of its nodes has joined: {', '.join(self.entry.nodes)}"
        return str(self.broken(now)) if self.broken_for(now) > 0 and not self.coming else self.last_failure

    def _state(self, now: float) -> ModelState:
        states = {replica.state for replica in self.instances}
        if "ready" in states:
            return "ready"
        if "loading" in states:
            return "loading"
        if self.entry.is_remote and self.why_not is None:
            # A request that tries a server shows that it may get others soon.
            return "broken" if all(server.open_seconds(now) for server in self.servers) else "ready"
        if self.waiting or any(replica.asked is not None for replica in self.instances):
            return "waiting"
        if "stopping" in states:
            return "stopping"
        if self.why_not is not None:
            return "unavailable"
        return "broken" if self.broken_for(now) > 0 else "unloaded"


def runs_here(entry: ModelEntry) -> bool:
    """Return whether a model may run on the head of a cluster, which is this machine."""
    return not entry.nodes or HEAD in entry.nodes


def _token_bytes(entry: ModelEntry) -> float:
    # Of the KV cells of a token, by the estimate from the header.
    assert entry.memory is not None, "a model without a header is not loaded"
    return entry.memory.kv_cache / (entry.options.cells or entry.context * entry.slots)


def _nodes(entry: ModelEntry, machine: str, topology: Topology) -> tuple[int | None, ...]:
    # The NUMA nodes of a machine that get a replica each; empty if the model may not run there.
    if machine and entry.nodes and machine not in entry.nodes:
        return ()
    if entry.numa is not None and all(node.id != entry.numa for node in topology.nodes):
        return ()
    return nodes_for(topology, entry.instances, entry.numa)


def _turn(waiter: Waiter) -> tuple[bool, float, float]:
    # the smallest is served first
    return not waiter.request.interactive, waiter.request.due, waiter.since


def _aged_turn(waiter: Waiter) -> tuple[float, float]:
    # Requests may wait for servers all day long, and none of them for ever.
    return waiter.request.due + (0.0 if waiter.request.interactive else BATCH_SLACK), waiter.since


def _demand(waiting: Collection[Waiter]) -> Demand:
    return Demand(
        since=min(waiter.since for waiter in waiting),
        interactive_since=min((waiter.since for waiter in waiting if waiter.request.interactive), default=math.inf),
        due=min(waiter.request.due for waiter in waiting),
        count=len(waiting),
    )
