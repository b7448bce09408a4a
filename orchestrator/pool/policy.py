"""Decide which engines to load, which to stop, and which to let run dry, from a picture of the pool. Pure.

- Never stopped: an engine that is loading, in use or pinned (HOT models are).
- Whoever waits is served by class (interactive before batch), then by what is due first, then by age. Requests for a
  model that is loaded do not wait, so its work goes before any switch. That is bounded by patience: who has waited
  too long comes first, nobody overtakes it, and engines in its way take no new requests until they are idle and go.
- A loaded engine stays for a while, so that models which are asked for in turn do not spend the time on loading: for
  `residency_seconds`, or as long as loading it took if that is longer. An interactive request that has no other way
  may end that earlier, once the engine has stayed for as long as loading it took: waiting then never costs more than
  the switch that it may save.
- A model of several instances gets another one when a whole further batch waits and there is free memory.
- An engine that nobody has used for `idle_unload_seconds` is stopped.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from orchestrator.pool.admission import Admitted, Budget, MustWait, NeverFits, Resident, Verdict, admit
from orchestrator.pool.placement import Place

State = Literal["absent", "loading", "ready", "stopping"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """All in seconds. `patience` and `batch_patience` bound how long the work of loaded models goes first.

    An engine that was used less than `pause_seconds` ago does not count as idle: callers ask in quick succession (how
    long is this prompt? then answer it), and would find their model gone in between.
    """

    idle_unload_seconds: float = 900.0
    residency_seconds: float = 10.0
    pause_seconds: float = 0.2
    patience: float = 5.0
    batch_patience: float = 30.0

    def overdue_at(self, want: "Demand") -> float:
        """Return when the first of the requests has waited too long."""
        return min(want.since + self.batch_patience, want.interactive_since + self.patience)

    def stays_until(self, one: "ReplicaView", interactive: bool) -> float:
        """Return until when a loaded engine is not stopped for an interactive request, or for one of a batch."""
        stay = (min if interactive else max)(one.load_seconds, self.residency_seconds)
        pause = 0.0 if one.draining else self.pause_seconds
        return max(one.loaded_at + stay, one.last_used + pause if not one.requests else -math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Requests that wait for a model.

    The oldest does since `since`, the oldest interactive one since `interactive_since` (infinite if none is), and the
    most urgent one should be done at `due`.
    """

    since: float
    interactive_since: float = math.inf
    due: float = math.inf

    @property
    def interactive(self) -> bool:
        """Whether any of them is interactive."""
        return self.interactive_since < math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaView:
    """One engine of a model, or the place for one. `bytes` is what it holds, or what it would need.

    `requests` have it in use. It has been `asked` for since then although no request may wait for it. A `draining` one
    takes no requests in, nor does one that is `leaving`, which is stopped as soon as it is idle.
    """

    place: Place
    bytes: int
    state: State = "absent"
    node: int | None = None
    pinned: bool = False
    requests: int = 0
    asked: float | None = None
    draining: bool = False
    leaving: bool = False
    loaded_at: float = 0.0
    load_seconds: float = 0.0
    last_used: float = 0.0

    @property
    def serves(self) -> bool:
        """Whether it takes requests in."""
        return self.state == "ready" and not self.draining and not self.leaving


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelView:
    """One model: how many requests an engine of it serves at a time, its engines, and who waits for one of them."""

    slots: int
    instances: tuple[ReplicaView, ...]
    demand: Demand | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """The pool at the time `now`."""

    now: float
    budget: Budget
    models: tuple[ModelView, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop this engine, for this reason. What it holds is free when its process is gone."""

    place: Place
    reason: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """It can never be loaded beside the engines that stay."""

    place: Place
    why: NeverFits


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolActions:
    """What to do now. `draining` are all engines that take no new requests; look again at `wake`, if not before."""

    loads: tuple[Place, ...] = ()
    stops: tuple[Stop, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    draining: frozenset[Place] = frozenset()
    wake: float | None = None


def decide(view: PoolView, rules: Rules) -> PoolActions:
    """Return what to do. The engines in `loads` fit now; what has to wait for a stop is decided again after it."""
    plan = _Plan(view, rules)
    plan.stop_idle()
    waiting = sorted(_wants(view.models), key=lambda want: _urgency(want, view.now, rules))
    served = all(plan.serve(want) for want in waiting)  # stops at the first one that nobody may overtake
    if served and not plan.blocked:
        plan.scale()
    return plan.actions()


@dataclass(frozen=True, slots=True)
class _Want:
    """One engine has to be loaded, in any of these places."""

    demand: Demand
    places: tuple[ReplicaView, ...]


def _wants(models: Iterable[ModelView]) -> Iterator[_Want]:
    for model in models:
        absent = tuple(one for one in model.instances if one.state == "absent")
        asked = [
            _Want(Demand(since=one.asked, interactive_since=one.asked, due=-math.inf), (one,))
            for one in absent
            if one.asked is not None
        ]
        yield from asked
        coming = asked or any(one.serves or (one.state == "loading" and not one.leaving) for one in model.instances)
        if model.demand is not None and absent and not coming:
            yield _Want(model.demand, absent)


def _urgency(want: _Want, now: float, rules: Rules) -> tuple[int, float, float, Place]:
    demand, place = want.demand, want.places[0].place
    if now >= rules.overdue_at(demand):
        return 0, demand.since, 0.0, place
    return 1 if demand.interactive else 2, demand.due, demand.since, place


class _Plan:
    """What the engines will be when everything decided so far has been done."""

    def __init__(self, view: PoolView, rules: Rules) -> None:
        self._view, self._rules, self._now = view, rules, view.now
        instances = [one for model in view.models for one in model.instances if one.state != "absent"]
        self._holding = {one.place: one for one in instances}
        self._staying = {one.place: one for one in instances if one.state != "stopping"}
        self._loads: list[Place] = []
        self._stops: list[Stop] = []
        self._refusals: list[Refusal] = []
        self._draining: set[Place] = set()
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
        """Stop those that were asked to go, and those that nobody has used for long."""
        for one in tuple(self._staying.values()):
            if one.state != "ready" or one.requests:
                continue
            expires = one.last_used + self._rules.idle_unload_seconds
            if one.leaving:
                self._stop(one.place, "it was asked to")
            elif not one.pinned and self._now >= expires:
                self._stop(one.place, f"idle for {self._now - one.last_used:.0f} s")
            elif not one.pinned:
                self._wakes.append(expires)

    def serve(self, want: _Want) -> bool:
        """Load the engine, or make room for it. Return False if nobody may overtake it."""
        one, verdict = min(((one, self._verdict(one, want.demand)) for one in want.places), key=_preference)
        match verdict:
            case NeverFits():
                self._refusals.append(Refusal(one.place, verdict))
            case Admitted(evicted):
                for place in evicted:
                    self._stop(place, f"makes room for {one.place[0]}")
                self._load(one)
            case MustWait():
                self.blocked = True
                return self._wait(one, want.demand, verdict)
        return True

    def scale(self) -> None:
        """Start another engine of a model for which a whole batch waits, where memory is free."""
        for model in self._view.models:
            serving = [one for one in model.instances if one.serves]
            absent = [one for one in model.instances if one.state == "absent"]
            if not serving or not absent or any(one.state == "loading" for one in model.instances):
                continue
            if sum(one.requests for one in serving) >= model.slots * (len(serving) + 1):
                free = (one for one in absent if self._fits(one, self._staying) and self._fits(one, self._holding))
                if one := next(free, None):
                    self._load(one)

    def _verdict(self, one: ReplicaView, demand: Demand) -> Verdict:
        """Prefer to evict those that have stayed for long enough; an interactive request may evict others, too."""
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

    def _fits(self, one: ReplicaView, beside: Mapping[Place, ReplicaView]) -> bool:
        return admit(one.bytes, one.node, map(_resident, beside.values()), self._view.budget) == Admitted(())

    def _load(self, one: ReplicaView) -> None:
        """Load it if it fits now. If it has to wait for a stop, nobody else is promised its bytes meanwhile."""
        coming = replace(one, state="loading")
        if self._fits(one, self._holding):
            self._loads.append(one.place)
            self._holding[one.place] = coming
        self._staying[one.place] = coming

    def _stop(self, place: Place, reason: str) -> None:
        self._stops.append(Stop(place, reason))
        del self._staying[place]

    def _wait(self, one: ReplicaView, demand: Demand, short: MustWait) -> bool:
        """Let work in progress go first, up to a limit; from then on make all the room that can be made."""
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
                self._stop(other.place, f"makes room for {one.place[0]}")
            elif missing > 0:
                missing -= other.bytes
                if self._now >= self._until(other, demand):
                    self._draining.add(other.place)
        return False

    def _until(self, other: ReplicaView, demand: Demand) -> float:
        return self._rules.stays_until(other, demand.interactive)


def _resident(one: ReplicaView) -> Resident:
    """Return an engine as one that holds its bytes and cannot be stopped."""
    return Resident(one.place, one.bytes, pinned=False, in_use=True, last_used=one.last_used, node=one.node)


def _preference(choice: tuple[ReplicaView, Verdict]) -> tuple[int, int]:
    """Sort the places where an engine could be loaded: those with room, then those that have to be waited for."""
    match choice[1]:
        case Admitted(evicted):
            return 0, len(evicted)
        case MustWait(short):
            return 1, short
        case NeverFits(short=short):
            return 2, short
