"""Which replica or server carries out each request for a model, in which order, and which requests wait."""

import asyncio
import dataclasses
import heapq
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from orchestrator.engine.kv.prefix_value import LEAST_TOKENS
from orchestrator.pool.places import Place, Places, Replica
from orchestrator.pool.policy import Demand
from orchestrator.pool.prompts import PrefixHashes
from orchestrator.pool.remote.client import RemoteModel
from orchestrator.pool.replica_choice import ANSWER_TOKENS, BLOCK_TOKENS, Offer, Pace, ReplicaCandidate, choose_replica
from orchestrator.pool.shipping import PAUSE_SECONDS, Links, Shipment
from orchestrator.registry.models import ModelEntry

_MOST_PLANNED: Final = 64  # waiting requests for which a place is looked for at a time
# Seconds of extra slack for batch requests, so that later interactive ones need not queue behind a whole fan-out. The
# engine bounds the value of slack: this is worth 27 seconds, then an older batch request goes first.
BATCH_SLACK: Final = 300.0
_ANSWERS: Final = 20  # in whose mean an answer counts


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRequest:
    """What a request needs from the place that serves it."""

    interactive: bool = True
    due: float = 0.0  # event loop time
    prefix_hashes: PrefixHashes = ()
    here: bool = True  # an engine can carry it out
    servers: bool = False  # a server can
    tools: bool = False  # it has tools, which not all servers take
    refused_by: frozenset[RemoteModel] = frozenset()


@dataclass(slots=True, eq=False)
class Waiter:
    """A waiting request. `granted` gets what serves it."""

    request: LeaseRequest
    since: float
    granted: asyncio.Future[Place]


@dataclass(slots=True, eq=False)
class Dispatcher:
    """Gives the requests for a model to its `places`."""

    places: Places
    waiting: dict[Waiter, None] = field(default_factory=dict)  # in order of arrival
    answer_tokens: float = ANSWER_TOKENS  # the mean of answers, of which later ones count more
    links: Links | None = None  # between the machines of a cluster
    # Until when no cells are shipped from one machine to another, by the event loop's time.
    paused: dict[tuple[str, str], float] = field(default_factory=dict)

    def serves(self, request: LeaseRequest) -> bool:
        """Whether something can carry out a request without being loaded, perhaps after others."""
        loaded_here = request.here and any(replica.serves for replica in self.places.replicas)
        return loaded_here or any(server.ready for server in self.servers_for(request))

    def servers_for(self, request: LeaseRequest) -> list[RemoteModel]:
        """Return the servers that can carry out a request, also if they rest."""
        if not request.servers:
            return []
        refusing = request.refused_by
        usable = [
            server for server in self.places.servers if not server.endpoint.unavailable and server not in refusing
        ]
        with_tools = [server for server in usable if server.takes_tools] if request.tools else usable
        return with_tools or usable

    def choose(self, request: LeaseRequest) -> Place | None:
        """Return what serves a request now, or None if the request must wait."""
        if not (servers := self.servers_for(request)):
            return self._choose_here(request.prefix_hashes)
        if self.places.entry.is_remote and len(self.places.servers) == 1:  # it keeps requests waiting itself
            return servers[0]
        if self.waiting and self._served_waiters():  # in their order
            return None
        place = self._best(request, self._ready_places(), {})
        return place if place is not None and self._free_slots(place) else None

    def _ready_places(self) -> dict[Place, tuple[int, Pace | None]]:
        # With the requests that each answers at a time, and its pace.
        replicas = {
            replica: (self.places.entry.slots, replica.pace) for replica in self.places.replicas if replica.serves
        }
        return replicas | {server: (server.at_once, server.pace) for server in self.places.ready_servers}

    def _best(
        self,
        request: LeaseRequest,
        ready: Mapping[Place, tuple[int, Pace | None]],
        planned: Mapping[Place, int],
    ) -> Place | None:
        # Where the request ends first after those that are `planned` for each place.
        able = self.servers_for(request) if request.tools or request.refused_by else self.places.servers
        places = [place for place in ready if (request.here if isinstance(place, Replica) else place in able)]
        candidates = []
        for number, place in enumerate(places):
            requests = place.leases + planned.get(place, 0)
            if isinstance(place, Replica):
                candidate = self._candidate(place, request.prefix_hashes)
                candidates.append(dataclasses.replace(candidate, number=number, requests=requests))
            else:
                slots, pace = ready[place]
                candidates.append(ReplicaCandidate(number, requests, slots, 0, pace))
        best = choose_replica(candidates, len(request.prefix_hashes), self.answer_tokens)
        return None if best is None else places[best]

    def _free_slots(self, place: Place) -> int:
        slots = place.slots if isinstance(place, RemoteModel) else self.places.entry.slots
        return max(0, slots - place.leases)

    def _choose_here(self, prefix_hashes: PrefixHashes) -> Replica | None:
        if len(self.places.replicas) == 1:  # it is this one or none
            return self.places.replicas[0] if self.places.replicas[0].serves else None
        # While another replica may come, none gets more requests than slots: what waits inside an engine cannot move.
        candidates = (
            self._candidate(replica, prefix_hashes)
            for replica in self.places.replicas
            if replica.serves and (self.places.complete or replica.leases < self.places.entry.slots)
        )
        number = choose_replica(candidates, len(prefix_hashes), self.answer_tokens)
        return None if number is None else self.places.replica(number)

    def _candidate(self, replica: Replica, prefix_hashes: PrefixHashes) -> ReplicaCandidate:
        cached_blocks = replica.prefixes.match(prefix_hashes)
        return ReplicaCandidate(
            replica.replica_id[1],
            replica.leases,
            self.places.entry.slots,
            cached_blocks,
            replica.pace,
            tuple(self._offers(replica, cached_blocks, prefix_hashes)) if replica.pace is not None else (),
        )

    def _offers(self, target: Replica, cached_blocks: int, prefix_hashes: PrefixHashes) -> Iterator[Offer]:
        if self.links is None or (len(prefix_hashes) - cached_blocks) * BLOCK_TOKENS < LEAST_TOKENS:
            return
        now = asyncio.get_running_loop().time()
        for source in self.places.replicas:
            ends = source.machine, target.machine
            if not source.serves or source.machine == target.machine or now < self.paused.get(ends, now):
                continue
            source_blocks = source.prefixes.match(prefix_hashes)
            if (source_blocks - cached_blocks) * BLOCK_TOKENS >= LEAST_TOKENS:
                size = source_blocks * BLOCK_TOKENS * _token_bytes(self.places.entry)
                yield Offer(source.replica_id[1], source_blocks, self.links.seconds(*ends, size))

    def grant(self, place: Place, request: LeaseRequest) -> None:
        """Count a request that `place` serves from now on, and promise it cells that are better shipped."""
        if isinstance(place, RemoteModel):
            place.grant()
            return
        if place.pace is not None:
            self._promise(place, place.pace, request.prefix_hashes)
        place.grant(request.prefix_hashes)

    def _promise(self, target: Replica, pace: Pace, hashes: PrefixHashes) -> None:
        candidate = self._candidate(target, hashes)
        offer = candidate.prefill(pace, len(hashes))[1]
        if offer is None:
            return
        source = self.places.replica(offer.number)
        assert source.engine is not None, "a replica that serves has an engine"
        seconds = (offer.held - candidate.held) * BLOCK_TOKENS * pace.prompt_token
        shipment = Shipment(source.engine, source.machine, pace.prompt_token, seconds)
        target.shipments.setdefault(hashes[offer.held - 1], shipment)

    def pause(self, source: str, target: str) -> None:
        """Ship no cells from one machine to another for a while, because that has failed."""
        self.paused[source, target] = asyncio.get_running_loop().time() + PAUSE_SECONDS

    def serve(self) -> None:
        """Lease replicas to waiting requests: interactive before batch, then by due time, then by age."""
        free = sum(self._free_slots(replica) for replica in self.places.replicas if replica.serves)
        served = self._served_waiters()
        waiting = self._waiters_for_engines(served)
        for waiter in heapq.nsmallest(len(waiting) if self.places.complete else free, waiting, key=_turn):
            replica = self._choose_here(waiter.request.prefix_hashes)
            if replica is None:
                break
            self._grant(waiter, replica)
        if served:
            self._serve_anywhere(served)

    def _serve_anywhere(self, waiters: Iterable[Waiter]) -> None:
        # What waits at a server or inside an engine cannot move, so requests wait here until the place where they are
        # expected to end first, after those that come before them, has a free slot.
        planned: Counter[Place] = Counter()
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

    def _grant(self, waiter: Waiter, place: Place) -> None:
        del self.waiting[waiter]
        if not waiter.granted.done():
            self.grant(place, waiter.request)
            waiter.granted.set_result(place)

    def _served_waiters(self) -> dict[Waiter, None]:
        # Those for which a server is there, even if others come first; in order of arrival.
        ready = self.places.ready_servers
        if not ready:
            return {}

        def is_served(request: LeaseRequest) -> bool:
            if not request.servers or not (request.tools or request.refused_by):  # as nearly all
                return request.servers
            return any(server in ready for server in self.servers_for(request))

        return dict.fromkeys(waiter for waiter in self.waiting if is_served(waiter.request))

    def _waiters_for_engines(self, served: Collection[Waiter]) -> list[Waiter]:
        return [waiter for waiter in self.waiting if waiter not in served and waiter.request.here]

    def note_answer(self, tokens: int) -> None:
        self.answer_tokens += (tokens - self.answer_tokens) / _ANSWERS

    def demand(self) -> tuple[Demand | None, int]:
        """Return what waits for engines alone, and how many requests exceed those that servers take at a time."""
        served = self._served_waiters()
        waiting = self._waiters_for_engines(served)
        overflow = len(served) + sum(server.leases - server.slots for server in self.places.ready_servers)
        return _demand(waiting) if waiting else None, max(0, overflow)

    def refuse(self, error: Exception, *, only_here: bool = False) -> None:
        """End the waits of requests; if `only_here`, of those that wait for an engine."""
        for waiter in self._waiters_for_engines(self._served_waiters()) if only_here else tuple(self.waiting):
            del self.waiting[waiter]
            if not waiter.granted.done():
                waiter.granted.set_exception(error)


def _token_bytes(entry: ModelEntry) -> float:
    # Of the KV cells of a token, by the estimate from the header.
    assert entry.memory is not None, "a model without a header is not loaded"
    return entry.memory.kv_cache / (entry.options.cells or entry.context * entry.slots)


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
