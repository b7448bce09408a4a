"""Decide which engines to load, to stop, and to drain, given the state of the pool. Pure.

- An engine that is loading, in use or pinned (as HOT models are) is never stopped.
- Waiting requests are served by class (interactive before batch), then by what is due first, then by age. Requests for
  a loaded model do not wait, so they go before requests that need another model. Patience bounds that: a request that
  has waited too long comes first, no other one overtakes it, and the engines whose memory it needs are drained: they
  take no new requests, and are stopped when they are idle.
- A loaded engine stays loaded for at least `residency_seconds`, or for as long as loading it took if that is longer, so
  that models which are used in turn are not loaded again and again. For an interactive request that cannot be served
  otherwise, the shorter of the two times counts.
- A model with several instances gets further engines, one for each whole further batch of requests that use it or wait
  for it, as far as there is free memory.
- An engine that has not been used for `idle_unload_seconds` is stopped.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from orchestrator.pool.admission import Admitted, MustWait, NeverFits, PoolBudget, Resident, Verdict, admit
from orchestrator.pool.placement import ReplicaId

ReplicaState = Literal["absent", "loading", "ready", "stopping"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The times of the policy, in seconds."""

    idle_unload_seconds: float = 900.0
    """An engine that has not been used for so long is stopped."""
    residency_seconds: float = 10.0
    """How long a loaded engine stays at least."""
    pause_seconds: float = 0.2
    """An engine that was used less than so long ago does not count as idle, since callers often send several requests
    in a row, such as the turns of one step."""
    patience: float = 5.0
    """How long an interactive request lets requests for loaded models go first."""
    batch_patience: float = 30.0
    """How long a batch request lets requests for loaded models go first."""

    def overdue_at(self, request: "Demand") -> float:
        """Return when the first of the requests has waited too long."""
        return min(request.since + self.batch_patience, request.interactive_since + self.patience)

    def stays_until(self, one: "ReplicaView", interactive: bool) -> float:
        """Return until when a loaded engine is not stopped for another request, which is interactive or not."""
        stay = (min if interactive else max)(one.load_seconds, self.residency_seconds)
        pause = 0.0 if one.draining else self.pause_seconds
        return max(one.loaded_at + stay, one.last_used + pause if not one.requests else -math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The requests that wait for a model."""

    since: float
    """Since when the oldest one waits."""
    interactive_since: float = math.inf
    """Since when the oldest interactive one waits; infinite if none is interactive."""
    due: float = math.inf
    """When the most urgent one should be done."""
    count: int = 1
    """How many there are."""

    @property
    def interactive(self) -> bool:
        """Whether any of the requests is interactive."""
        return self.interactive_since < math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaView:
    """One replica of a model, whether it has an engine now or not."""

    replica_id: ReplicaId
    bytes: int
    """What its engine holds, or would need."""
    state: ReplicaState = "absent"
    node: int | None = None
    pinned: bool = False
    requests: int = 0
    """How many requests use it."""
    asked: float | None = None
    """Since when it is to be loaded although no request waits for it; None if it is not."""
    draining: bool = False
    """Whether it takes no new requests, because a request that has waited too long needs its memory."""
    leaving: bool = False
    """Whether it takes no new requests and is stopped as soon as it is idle."""
    loaded_at: float = 0.0
    load_seconds: float = 0.0
    last_used: float = 0.0

    @property
    def serves(self) -> bool:
        """Whether it takes new requests."""
        return self.state == "ready" and not self.draining and not self.leaving


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelView:
    """One model: how many requests an engine of it serves at a time, its replicas, and the requests that wait."""

    slots: int
    instances: tuple[ReplicaView, ...]
    demand: Demand | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """The pool at the time `now`."""

    now: float
    budget: PoolBudget
    models: tuple[ModelView, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop this engine, for this reason. Its memory is free when its process has ended."""

    replica_id: ReplicaId
    reason: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """This engine cannot be loaded, because it does not fit beside the pinned ones."""

    replica_id: ReplicaId
    why: NeverFits


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolActions:
    """What to do now. `draining` are all engines that take no new requests. Decide again at `wake` at the latest."""

    loads: tuple[ReplicaId, ...] = ()
    stops: tuple[Stop, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    draining: frozenset[ReplicaId] = frozenset()
    wake: float | None = None


def decide(view: PoolView, rules: Rules) -> PoolActions:
    """Return what to do. The engines in `loads` fit now. For those that need a stop first, decide again after it."""
    plan = _Plan(view, rules)
    plan.stop_idle()
    waiting = sorted(_load_requests(view.models), key=lambda request: _urgency(request, view.now, rules))
    served = all(plan.serve(request) for request in waiting)  # ends at the first request that no other one may overtake
    if served and not plan.blocked:
        plan.scale()
    return plan.actions()


@dataclass(frozen=True, slots=True)
class _LoadRequest:
    """A request to load one engine, as any of these replicas."""

    demand: Demand
    replicas: tuple[ReplicaView, ...]


def _load_requests(models: Iterable[ModelView]) -> Iterator[_LoadRequest]:
    for model in models:
        absent = tuple(one for one in model.instances if one.state == "absent")
        asked = [
            _LoadRequest(Demand(since=one.asked, interactive_since=one.asked, due=-math.inf), (one,))
            for one in absent
            if one.asked is not None
        ]
        yield from asked
        coming = asked or any(one.serves or (one.state == "loading" and not one.leaving) for one in model.instances)
        if model.demand is not None and absent and not coming:
            yield _LoadRequest(model.demand, absent)


def _urgency(request: _LoadRequest, now: float, rules: Rules) -> tuple[int, float, float, ReplicaId]:
    demand, replica_id = request.demand, request.replicas[0].replica_id
    if now >= rules.overdue_at(demand):
        return 0, demand.since, 0.0, replica_id
    return 1 if demand.interactive else 2, demand.due, demand.since, replica_id


class _Plan:
    """Collects decisions, and knows the state of all engines after the decisions so far."""

    def __init__(self, view: PoolView, rules: Rules) -> None:
        self._view, self._rules, self._now = view, rules, view.now
        instances = [one for model in view.models for one in model.instances if one.state != "absent"]
        self._holding = {one.replica_id: one for one in instances}
        self._staying = {one.replica_id: one for one in instances if one.state != "stopping"}
        self._loads: list[ReplicaId] = []
        self._stops: list[Stop] = []
        self._refusals: list[Refusal] = []
        self._draining: set[ReplicaId] = set()
        self._wakes: list[float] = []
        self.blocked = False

    def actions(self) -> PoolActions:
        """Return what was decided."""
        return PoolActions(
            loads=tuple(self._loads),
            stops=tuple(self._stops),
            refusals=tuple(self._refusals),
            draining=frozenset(self._draining),
            wake=min((wake for wake in self._wakes if wake > self._now), default=None),
        )

    def stop_idle(self) -> None:
        """Stop the idle engines that are leaving, and those that have not been used for long."""
        for one in tuple(self._staying.values()):
            if one.state != "ready" or one.requests:
                continue
            expires = one.last_used + self._rules.idle_unload_seconds
            if one.leaving:
                self._stop(one.replica_id, "it was asked to")
            elif not one.pinned and self._now >= expires:
                self._stop(one.replica_id, f"idle for {self._now - one.last_used:.0f} s")
            elif not one.pinned:
                self._wakes.append(expires)

    def serve(self, request: _LoadRequest) -> bool:
        """Load the engine, or make room for it. Return False if no later request may overtake this one."""
        one, verdict = min(((one, self._verdict(one, request.demand)) for one in request.replicas), key=_preference)
        match verdict:
            case NeverFits():
                self._refusals.append(Refusal(one.replica_id, verdict))
            case Admitted(evicted):
                for replica_id in evicted:
                    self._stop(replica_id, f"makes room for {one.replica_id[0]}")
                self._load(one)
            case MustWait():
                self.blocked = True
                return self._wait(one, request.demand, verdict)
        return True

    def scale(self) -> None:
        """Start further engines of each model for which whole batches wait, if there is free memory."""
        for model in self._view.models:
            staying = [self._staying[one.replica_id] for one in model.instances if one.replica_id in self._staying]
            up = sum(one.serves or (one.state == "loading" and not one.leaving) for one in staying)
            requests = sum(one.requests for one in staying if one.serves)
            requests += model.demand.count if model.demand is not None else 0
            absent = (one for one in model.instances if one.state == "absent")
            for one in (one for one in absent if one.replica_id not in self._staying):
                if not up or requests < model.slots * (up + 1):
                    break
                if self._fits(one, self._staying) and self._fits(one, self._holding):
                    self._load(one)
                    up += 1

    def _verdict(self, one: ReplicaView, demand: Demand) -> Verdict:
        """Return whether the replica can be loaded. An interactive request may evict engines earlier than others."""
        verdict = self._admit(one, interactive=False)
        if isinstance(verdict, MustWait) and demand.interactive:
            verdict = self._admit(one, interactive=True)
        return verdict

    def _admit(self, one: ReplicaView, *, interactive: bool) -> Verdict:
        residents = (
            replace(_resident(other), pinned=other.pinned, in_use=not self._idle(other, interactive))
            for other in self._staying.values()
        )
        return admit(one.bytes, one.node, residents, self._view.budget)

    def _idle(self, one: ReplicaView, interactive: bool) -> bool:
        over = self._now >= self._rules.stays_until(one, interactive)
        return one.state == "ready" and not one.requests and over

    def _fits(self, one: ReplicaView, beside: Mapping[ReplicaId, ReplicaView]) -> bool:
        return admit(one.bytes, one.node, map(_resident, beside.values()), self._view.budget) == Admitted(())

    def _load(self, one: ReplicaView) -> None:
        """Load the replica if it fits now. If it has to wait for a stop, its bytes are reserved meanwhile."""
        coming = replace(one, state="loading")
        if self._fits(one, self._holding):
            self._loads.append(one.replica_id)
            self._holding[one.replica_id] = coming
        self._staying[one.replica_id] = coming

    def _stop(self, replica_id: ReplicaId, reason: str) -> None:
        self._stops.append(Stop(replica_id, reason))
        del self._staying[replica_id]

    def _wait(self, one: ReplicaView, demand: Demand, short: MustWait) -> bool:
        """Let running requests go first, until this one has waited too long; then stop and drain what is in its way."""
        overdue = self._rules.overdue_at(demand)
        in_the_way = [
            other
            for other in self._staying.values()
            if other.state == "ready" and not other.pinned and (short.node is None or other.node == short.node)
        ]
        self._wakes += [overdue, *(self._rules.stays_until(other, demand.interactive) for other in in_the_way)]
        if self._now < overdue:
            return True
        missing = short.short
        for other in sorted(in_the_way, key=lambda other: (not other.draining, self._until(other, demand))):
            if self._idle(other, demand.interactive):
                self._stop(other.replica_id, f"makes room for {one.replica_id[0]}")
            elif missing > 0:
                missing -= other.bytes
                if self._now >= self._until(other, demand):
                    self._draining.add(other.replica_id)
        return False

    def _until(self, other: ReplicaView, demand: Demand) -> float:
        return self._rules.stays_until(other, demand.interactive)


def _resident(one: ReplicaView) -> Resident:
    """Describe an engine for `admit` as one that cannot be evicted."""
    return Resident(one.replica_id, one.bytes, pinned=False, in_use=True, last_used=one.last_used, node=one.node)


def _preference(choice: tuple[ReplicaView, Verdict]) -> tuple[int, int]:
    """Order replicas: first those that fit, by evictions; then those that have to wait, by missing bytes."""
    match choice[1]:
        case Admitted(evicted):
            return 0, len(evicted)
        case MustWait(short):
            return 1, short
        case NeverFits(short=short):
            return 2, short
