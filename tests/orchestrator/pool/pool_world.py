"""A pool without processes: it does what the policy decides, in a time of its own, and checks every deed."""

import heapq
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.pool.admission import Budget
from orchestrator.pool.placement import Place
from orchestrator.pool.policy import Decision, Demand, InstanceView, ModelView, PoolView, Rules, State, decide

SLOTS = 2


@dataclass
class Engine:
    place: Place
    bytes: int
    pinned: bool = False
    state: State = "absent"
    requests: int = 0
    draining: bool = False
    leaving: bool = False
    asked: float | None = None
    loaded_at: float = 0.0
    last_used: float = 0.0


@dataclass
class Request:
    model: str
    since: float
    interactive: bool
    on_start: Callable[[Engine], None] = lambda engine: None


@dataclass
class World:
    """`sizes` maps models to the bytes of each of their instances. Loading takes `load_seconds`."""

    sizes: dict[str, tuple[int, ...]]
    budget: int
    rules: Rules
    load_seconds: float = 1.0
    now: float = 0.0
    waiting: list[Request] = field(default_factory=list)
    refused: list[Request] = field(default_factory=list)
    loads: int = 0
    wake: float | None = None

    def __post_init__(self) -> None:
        self.engines = {
            (model, number): Engine((model, number), size)
            for model, sizes in self.sizes.items()
            for number, size in enumerate(sizes)
        }
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    # What happens to it

    def ask(self, request: Request) -> None:
        self.waiting.append(request)
        self.serve()
        self.reconsider()

    def release(self, engine: Engine) -> None:
        engine.requests -= 1
        engine.last_used = self.now
        self.reconsider()

    def loaded(self, engine: Engine) -> None:
        engine.state, engine.loaded_at, engine.last_used = "ready", self.now, self.now
        self.serve()
        self.reconsider()

    def gone(self, engine: Engine) -> None:
        engine.state, engine.requests, engine.draining, engine.leaving = "absent", 0, False, False
        self.reconsider()

    # What it does

    def reconsider(self) -> None:
        decision = decide(self.view(), self.rules)
        self._check(decision)
        for stop in decision.stops:
            self.engines[stop.place].state = "stopping"
        for refusal in decision.refusals:
            self.engines[refusal.place].asked = None
            model = refusal.place[0]
            if not any(self._coming(engine) for engine in self._of(model)):
                self.refused += [request for request in self.waiting if request.model == model]
                self.waiting = [request for request in self.waiting if request.model != model]
        for place in decision.loads:
            self.engines[place].state, self.engines[place].asked = "loading", None
            self.loads += 1
        for place, engine in self.engines.items():
            engine.draining = place in decision.draining
        self.serve()
        self.wake = decision.wake

    def serve(self) -> None:
        still: list[Request] = []
        for request in self.waiting:
            takers = [engine for engine in self._of(request.model) if self._serves(engine)]
            if takers:
                engine = min(takers, key=lambda engine: engine.requests)
                engine.requests += 1
                request.on_start(engine)
            else:
                still.append(request)
        self.waiting = still

    def view(self) -> PoolView:
        models = []
        for model in self.sizes:
            waiting = [request for request in self.waiting if request.model == model]
            interactive = [request.since for request in waiting if request.interactive]
            demand = (
                Demand(
                    since=min(request.since for request in waiting),
                    interactive_since=min(interactive, default=math.inf),
                    due=min(request.since for request in waiting),
                )
                if waiting
                else None
            )
            instances = tuple(
                InstanceView(load_seconds=self.load_seconds, **vars(engine)) for engine in self._of(model)
            )
            models.append(ModelView(slots=SLOTS, instances=instances, demand=demand))
        return PoolView(now=self.now, budget=Budget(self.budget), models=tuple(models))

    @property
    def used(self) -> int:
        return sum(engine.bytes for engine in self.engines.values() if engine.state != "absent")

    def _check(self, decision: Decision) -> None:
        """A decision stops nobody that is in use, loading or pinned, and loads no more than there is room for."""
        for stop in decision.stops:
            engine = self.engines[stop.place]
            assert (engine.state, engine.requests, engine.pinned) == ("ready", 0, False), stop
        loading = sum(self.engines[place].bytes for place in decision.loads)
        assert self.used + loading <= self.budget
        assert all(self.engines[place].state == "absent" for place in decision.loads)
        assert all(not self.engines[place].pinned for place in decision.draining)
        assert decision.wake is None or decision.wake > self.now

    def _of(self, model: str) -> list[Engine]:
        return [engine for place, engine in self.engines.items() if place[0] == model]

    def _serves(self, engine: Engine) -> bool:
        return engine.state == "ready" and not engine.draining and not engine.leaving

    def _coming(self, engine: Engine) -> bool:
        return engine.state in ("ready", "loading")

    # How time goes by

    def at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._later, (when, next(self._numbers), what))

    def run(self, until: float, stop_seconds: float = 0.1) -> None:
        """Let everything take its time: loads, stops, and what `at` was told, until the time `until`."""
        begun: set[Place] = set()
        while True:
            for place, engine in self.engines.items():
                if engine.state in ("loading", "stopping") and place not in begun:
                    begun.add(place)
                    loading = engine.state == "loading"
                    self.at(
                        self.now + (self.load_seconds if loading else stop_seconds),
                        lambda engine=engine, loading=loading, place=place: (  # type: ignore[misc]
                            begun.discard(place),
                            self.loaded(engine) if loading else self.gone(engine),
                        ),
                    )
            due = self._later[0][0] if self._later else until
            if self.wake is not None and self.wake < due:
                due = self.wake
            if due >= until:
                self.now = until
                return
            self.now = max(self.now, due)
            if self._later and self._later[0][0] <= self.now:
                heapq.heappop(self._later)[2]()
            else:
                self.reconsider()
