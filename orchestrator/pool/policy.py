"""Decide which engines to load, stop and drain, given the state of the pool. Pure.

- An engine that is loading, in use or pinned (as HOT models are) is never stopped.
- Waiting requests are served by class (interactive before batch), then by due time, then by age. Requests for a
  loaded model go first, within limits: a request that has waited too long is not overtaken, and the engines whose
  memory it needs are drained, that is, they take no new requests and stop when they are idle.
- A loaded engine stays for `residency_seconds` or its loading time, whichever is longer (shorter if an interactive
  request needs its memory), so that models in alternating use are not reloaded all the time.
- A model with several instances gets one more engine for each whole further batch of requests, if memory is free.
- An engine that was unused for `idle_unload_seconds` is stopped.
- On several machines, an engine is loaded where the fewest others have to stop for it, then where the model's files
  are, then where the fewest engines share the cores. What is true of memory holds for each machine on its own.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

ReplicaId = tuple[str, int]  # the model's id, and the replica's number from 0


@dataclass(frozen=True, slots=True)
class PoolBudget:
    """The bytes that engines of one machine may take, and its cores; and those of the other machines, by name."""

    total: int  # all engines together
    # engines bound to a NUMA node, by node; empty on a machine with one node
    nodes: Mapping[int, int] = field(default_factory=dict)
    cores: int = 1
    machines: Mapping[str, "PoolBudget"] = field(default_factory=dict)

    def of(self, machine: str) -> "PoolBudget":
        """Return the budget of a machine; the empty name is this one. A machine that has left has none."""
        return self.machines.get(machine, PoolBudget(0)) if machine else self

    def limits(self, node: int | None) -> Iterator[tuple[int | None, int]]:
        """Yield the limits for an engine on `node` as (node, bytes); None is the whole machine."""
        if node is not None and node in self.nodes:
            yield node, self.nodes[node]
        yield None, self.total


@dataclass(frozen=True, slots=True)
class Resident:
    """An engine that holds memory, or for which memory is reserved."""

    replica_id: ReplicaId
    bytes: int
    pinned: bool
    in_use: bool
    last_used: float  # by any clock: only the order matters
    node: int | None = None
    machine: str = ""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The engine can be loaded after those in `evicted` (least recently used first) have stopped."""

    evicted: tuple[ReplicaId, ...]


@dataclass(frozen=True, slots=True)
class MustWait:
    """The engine fits once engines in use become idle. Now `short` bytes are missing on `node` of `machine`."""

    short: int
    node: int | None = None
    machine: str = ""


@dataclass(frozen=True, slots=True)
class NeverFits:
    """The engine does not fit next to the pinned ones: it exceeds the `limit` of `node` by `short` bytes."""

    pinned: int
    short: int
    limit: int
    node: int | None = None
    machine: str = ""


Verdict = Admitted | MustWait | NeverFits


def admit(size: int, node: int | None, residents: Iterable[Resident], budget: PoolBudget, machine: str = "") -> Verdict:
    """Decide about an engine of `size` bytes on `node` of `machine`.

    Evicts as few engines of that machine as needed, least recently used first.
    """
    local = (resident for resident in residents if resident.machine == machine)
    by_last_use = sorted(local, key=lambda resident: resident.last_used)
    evicted: dict[ReplicaId, Resident] = {}
    for where, limit in budget.of(machine).limits(node):
        covered = [resident for resident in by_last_use if where is None or resident.node == where]
        pinned = sum(resident.bytes for resident in covered if resident.pinned)
        if pinned + size > limit:
            return NeverFits(pinned, pinned + size - limit, limit, where, machine)
        short = sum(resident.bytes for resident in covered if resident.replica_id not in evicted) + size - limit
        for resident in covered:
            if short > 0 and not resident.pinned and not resident.in_use and resident.replica_id not in evicted:
                evicted[resident.replica_id] = resident
                short -= resident.bytes
        if short > 0:
            return MustWait(short, where, machine)
    return Admitted(tuple(evicted))


ReplicaState = Literal["absent", "loading", "ready", "stopping"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The times of the policy, in seconds."""

    idle_unload_seconds: float = 900.0  # then an unused engine is stopped
    residency_seconds: float = 10.0  # a loaded engine stays at least this long
    # An engine is idle only after this time, since callers often send several requests in a row, such as the turns of
    # one step.
    pause_seconds: float = 0.2
    patience: float = 5.0  # how long an interactive request lets requests for loaded models go first
    batch_patience: float = 30.0  # the same for a batch request

    def overdue_at(self, request: "Demand") -> float:
        """Return when the first request has waited too long."""
        return min(request.since + self.batch_patience, request.interactive_since + self.patience)

    def stays_until(self, replica: "ReplicaView", interactive: bool) -> float:
        stay = (min if interactive else max)(replica.load_seconds, self.residency_seconds)
        pause = 0.0 if replica.draining else self.pause_seconds
        return max(replica.loaded_at + stay, replica.last_used + pause if not replica.requests else -math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    since: float  # of the oldest
    interactive_since: float = math.inf  # of the oldest interactive one; infinite if there is none
    due: float = math.inf  # of the most urgent
    count: int = 1

    @property
    def interactive(self) -> bool:
        return self.interactive_since < math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaView:
    replica_id: ReplicaId
    bytes: int  # held or needed
    state: ReplicaState = "absent"
    node: int | None = None
    machine: str = ""  # of a cluster; empty for this one
    on_disk: bool = True  # the machine has the model's files
    pinned: bool = False
    requests: int = 0
    preload_since: float | None = None  # since when it should be loaded although no request waits for it
    draining: bool = False  # takes no new requests, because a request that has waited too long needs its memory
    leaving: bool = False  # takes no new requests, and stops as soon as it is idle
    loaded_at: float = 0.0
    load_seconds: float = 0.0
    last_used: float = 0.0

    @property
    def serves(self) -> bool:
        return self.state == "ready" and not self.draining and not self.leaving


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelView:
    slots: int
    instances: tuple[ReplicaView, ...]
    demand: Demand | None = None  # of requests that no server can carry out
    served: bool = False  # by servers, too
    overflow: int = 0  # requests at servers, or waiting for them, beyond those that they take at a time
    least: int = 0  # replicas to load as soon as there is one
    most: int | None = None  # replicas at a time; None: as many as there are


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    now: float
    budget: PoolBudget
    models: tuple[ModelView, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop this engine. Its memory is free when its process has ended."""

    replica_id: ReplicaId
    reason: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """This engine does not fit next to the pinned ones."""

    replica_id: ReplicaId
    why: NeverFits


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolActions:
    """`draining` are all engines that take no new requests. Decide again at `wake` at the latest."""

    loads: tuple[ReplicaId, ...] = ()
    stops: tuple[Stop, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    draining: frozenset[ReplicaId] = frozenset()
    wake: float | None = None


def decide(view: PoolView, rules: Rules) -> PoolActions:
    """Return what to do. `loads` fit now; those that need a stop first come up again after it."""
    plan = _Plan(view, rules)
    plan.stop_idle()
    waiting = sorted(_load_requests(view.models), key=lambda request: _urgency(request, view.now, rules))
    served = all(plan.serve(request) for request in waiting)  # ends at the first request that no other one may overtake
    if served and not plan.blocked:
        plan.scale()
    return plan.actions()


@dataclass(frozen=True, slots=True)
class _LoadRequest:
    demand: Demand
    replicas: tuple[ReplicaView, ...]


def _load_requests(models: Iterable[ModelView]) -> Iterator[_LoadRequest]:
    for model in models:
        absent = tuple(replica for replica in model.instances if replica.state == "absent")
        preloads = [
            _LoadRequest(
                Demand(since=replica.preload_since, interactive_since=replica.preload_since, due=-math.inf), (replica,)
            )
            for replica in absent
            if replica.preload_since is not None
        ]
        yield from preloads
        coming = preloads or any(
            replica.serves or (replica.state == "loading" and not replica.leaving) for replica in model.instances
        )
        if model.demand is not None and absent and not coming:
            yield _LoadRequest(model.demand, absent)


def _urgency(request: _LoadRequest, now: float, rules: Rules) -> tuple[int, float, float, ReplicaId]:
    demand, replica_id = request.demand, request.replicas[0].replica_id
    if now >= rules.overdue_at(demand):
        return 0, demand.since, 0.0, replica_id
    return 1 if demand.interactive else 2, demand.due, demand.since, replica_id


class _Plan:
    # Engines hold their memory until they have stopped; the staying ones are those without a stop.
    def __init__(self, view: PoolView, rules: Rules) -> None:
        self._view, self._rules, self._now = view, rules, view.now
        instances = [replica for model in view.models for replica in model.instances if replica.state != "absent"]
        self._holding = {replica.replica_id: replica for replica in instances}
        self._staying = {replica.replica_id: replica for replica in instances if replica.state != "stopping"}
        self._loads: list[ReplicaId] = []
        self._stops: list[Stop] = []
        self._refusals: list[Refusal] = []
        self._draining: set[ReplicaId] = set()
        self._wakes: list[float] = []
        self.blocked = False

    def actions(self) -> PoolActions:
        return PoolActions(
            loads=tuple(self._loads),
            stops=tuple(self._stops),
            refusals=tuple(self._refusals),
            draining=frozenset(self._draining),
            wake=min((wake for wake in self._wakes if wake > self._now), default=None),
        )

    def stop_idle(self) -> None:
        for replica in tuple(self._staying.values()):
            if replica.state != "ready" or replica.requests:
                continue
            expires = replica.last_used + self._rules.idle_unload_seconds
            if replica.leaving:
                self._stop(replica.replica_id, "it was asked to")
            elif not replica.pinned and self._now >= expires:
                self._stop(replica.replica_id, f"idle for {self._now - replica.last_used:.0f} s")
            elif not replica.pinned:
                self._wakes.append(expires)

    def serve(self, request: _LoadRequest) -> bool:
        replica, verdict = min(
            ((replica, self._verdict(replica, request.demand)) for replica in request.replicas), key=self._preference
        )
        # False means that no later request may overtake this one.
        match verdict:
            case NeverFits():
                self._refusals.append(Refusal(replica.replica_id, verdict))
            case Admitted(evicted):
                for replica_id in evicted:
                    self._stop(replica_id, f"makes room for {replica.replica_id[0]}")
                self._load(replica)
            case MustWait():
                self.blocked = True
                return self._wait(replica, request.demand, verdict)
        return True

    def scale(self) -> None:
        # One more engine for each whole batch, and as many as the registry asks for at least, if memory is free.
        for model in self._view.models:
            staying = [
                self._staying[replica.replica_id] for replica in model.instances if replica.replica_id in self._staying
            ]
            up = sum(replica.serves or (replica.state == "loading" and not replica.leaving) for replica in staying)
            requests = sum(replica.requests for replica in staying if replica.serves)
            requests += model.overflow + (model.demand.count if model.demand is not None else 0)
            absent = (replica for replica in model.instances if replica.state == "absent")
            free = (replica for replica in absent if replica.replica_id not in self._staying)
            for replica in sorted(free, key=self._convenience):
                enough = (up >= model.least or not up) and requests < model.slots * (up + 1)
                if not (up or model.served) or enough or (model.most is not None and len(staying) >= model.most):
                    break
                if self._fits(replica, self._staying) and self._fits(replica, self._holding):
                    self._load(replica)
                    staying.append(replica)
                    up += 1

    def _preference(self, choice: tuple[ReplicaView, Verdict]) -> tuple[int, int, tuple[bool, float]]:
        # First replicas that fit, by evictions; then those that must wait, by missing bytes.
        replica, verdict = choice
        convenience = self._convenience(replica)
        match verdict:
            case Admitted(evicted):
                return 0, len(evicted), convenience
            case MustWait(short):
                return 1, short, convenience
            case NeverFits(short=short):
                return 2, short, convenience

    def _convenience(self, replica: ReplicaView) -> tuple[bool, float]:
        # Files take minutes to reach a machine. Then the machine whose busy engines have the most cores each.
        busy = sum(
            resident.machine == replica.machine and (resident.requests > 0 or resident.state == "loading")
            for resident in self._staying.values()
        )
        return not replica.on_disk, busy / self._view.budget.of(replica.machine).cores

    def _verdict(self, replica: ReplicaView, demand: Demand) -> Verdict:
        verdict = self._admit(replica, interactive=False)
        # An interactive request may evict engines earlier.
        if isinstance(verdict, MustWait) and demand.interactive:
            verdict = self._admit(replica, interactive=True)
        return verdict

    def _admit(self, replica: ReplicaView, *, interactive: bool) -> Verdict:
        residents = (
            replace(_resident(resident), pinned=resident.pinned, in_use=not self._idle(resident, interactive))
            for resident in self._staying.values()
        )
        return admit(replica.bytes, replica.node, residents, self._view.budget, replica.machine)

    def _idle(self, replica: ReplicaView, interactive: bool) -> bool:
        over = self._now >= self._rules.stays_until(replica, interactive)
        return replica.state == "ready" and not replica.requests and over

    def _fits(self, replica: ReplicaView, beside: Mapping[ReplicaId, ReplicaView]) -> bool:
        residents = map(_resident, beside.values())
        return admit(replica.bytes, replica.node, residents, self._view.budget, replica.machine) == Admitted(())

    def _load(self, replica: ReplicaView) -> None:
        coming = replace(replica, state="loading")
        if self._fits(replica, self._holding):
            self._loads.append(replica.replica_id)
            self._holding[replica.replica_id] = coming
        # If it must wait for a stop, its bytes are reserved.
        self._staying[replica.replica_id] = coming

    def _stop(self, replica_id: ReplicaId, reason: str) -> None:
        self._stops.append(Stop(replica_id, reason))
        del self._staying[replica_id]

    def _wait(self, replica: ReplicaView, demand: Demand, short: MustWait) -> bool:
        overdue = self._rules.overdue_at(demand)
        in_the_way = [
            blocker
            for blocker in self._staying.values()
            if blocker.state == "ready"
            and not blocker.pinned
            and blocker.machine == short.machine
            and (short.node is None or blocker.node == short.node)
        ]
        self._wakes += [overdue, *(self._rules.stays_until(blocker, demand.interactive) for blocker in in_the_way)]
        # Running requests go first until this one has waited too long; then stop and drain what is in its way.
        if self._now < overdue:
            return True
        missing = short.short
        for blocker in sorted(in_the_way, key=lambda blocker: (not blocker.draining, self._until(blocker, demand))):
            if self._idle(blocker, demand.interactive):
                self._stop(blocker.replica_id, f"makes room for {replica.replica_id[0]}")
            elif missing > 0:
                missing -= blocker.bytes
                if self._now >= self._until(blocker, demand):
                    self._draining.add(blocker.replica_id)
        return False

    def _until(self, replica: ReplicaView, demand: Demand) -> float:
        return self._rules.stays_until(replica, demand.interactive)


def _resident(replica: ReplicaView) -> Resident:
    # in use, so that it cannot be evicted
    return Resident(
        replica.replica_id,
        replica.bytes,
        pinned=False,
        in_use=True,
        last_used=replica.last_used,
        node=replica.node,
        machine=replica.machine,
    )
