"""The policy over time: any course of events, models that are asked for in turn, a stream that never ends."""

import hypothesis.strategies as st
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pool_world import Engine, Request, World

from orchestrator.pool.policy import Rules

RULES = Rules(idle_unload_seconds=60, residency_seconds=10, pause_seconds=0.2, patience=5, batch_patience=30)
SIZES = {"a": (60,), "b": (60,), "c": (35,), "twin": (30, 30), "hot": (10,), "huge": (101,)}
MODELS = st.sampled_from(sorted(SIZES))


class AnyCourse(RuleBasedStateMachine):
    """Whatever happens, the world's own checks hold; and once nothing new comes, everyone who waits is served."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(SIZES, 100, RULES)
        hot = self.world.engines["hot", 0]
        hot.pinned, hot.asked = True, 0.0
        self.world.reconsider()

    def _one(self, number: int, *states: str, busy: bool = False) -> Engine | None:
        engines = [one for one in self.world.engines.values() if one.state in states and (one.requests or not busy)]
        return engines[number % len(engines)] if engines else None

    @rule(model=MODELS, interactive=st.booleans())
    def ask(self, model: str, interactive: bool) -> None:
        self.world.ask(Request(model, self.world.now, interactive))

    @rule(number=st.integers(0, 9))
    def finish(self, number: int) -> None:
        if engine := self._one(number, "ready", busy=True):
            self.world.release(engine)

    @rule(number=st.integers(0, 9))
    def finish_load(self, number: int) -> None:
        if engine := self._one(number, "loading"):
            self.world.loaded(engine)

    @rule(number=st.integers(0, 9))
    def finish_stop(self, number: int) -> None:
        if engine := self._one(number, "stopping"):
            self.world.gone(engine)

    @rule(number=st.integers(0, 9))
    def die(self, number: int) -> None:
        if engine := self._one(number, "ready", "loading"):
            self.world.gone(engine)

    @rule(seconds=st.floats(0, 40))
    def wait(self, seconds: float) -> None:
        self.world.now += seconds
        self.world.reconsider()

    @precondition(lambda self: self.world.waiting)
    @rule(number=st.integers(0, 9))
    def give_up(self, number: int) -> None:
        del self.world.waiting[number % len(self.world.waiting)]
        self.world.reconsider()

    @rule(model=MODELS, pinned=st.booleans())
    def pin(self, model: str, pinned: bool) -> None:
        for engine in self.world._of(model):
            engine.pinned, engine.leaving = pinned, engine.leaving and not pinned
        self.world.reconsider()

    @rule(model=MODELS)
    def unload(self, model: str) -> None:
        for engine in self.world._of(model):
            engine.leaving = not engine.pinned and engine.state in ("loading", "ready")
        self.world.reconsider()

    @invariant()
    def bytes_are_within_the_budget(self) -> None:
        assert self.world.used <= self.world.budget

    @invariant()
    def only_those_in_the_way_of_one_that_has_waited_too_long_run_dry(self) -> None:
        overdue = any(
            self.world.now >= request.since + (RULES.patience if request.interactive else RULES.batch_patience)
            for request in self.world.waiting
        )
        assert overdue or not any(engine.draining for engine in self.world.engines.values())

    def teardown(self) -> None:
        world = self.world
        for _ in range(200):
            if not world.waiting:
                break
            for engine in world.engines.values():
                match engine.state:
                    case "ready" if engine.requests:
                        world.release(engine)
                    case "loading":
                        world.loaded(engine)
                    case "stopping":
                        world.gone(engine)
            world.now = world.now + 0.1 if world.wake is None else max(world.wake, world.now)
            world.reconsider()
        assert not world.waiting


AnyCourse.TestCase.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
test_any_course_of_events = AnyCourse.TestCase


class Client:
    """Asks for a model again and again, one request after the other, with a gap in between."""

    def __init__(self, world: World, model: str, seconds: float, gap: float, interactive: bool) -> None:
        self.world, self.model, self.seconds, self.gap, self.interactive = world, model, seconds, gap, interactive
        self.served = 0
        self.longest_wait = 0.0
        self.ask()

    def ask(self) -> None:
        asked = self.world.now

        def started(engine: Engine) -> None:
            self.longest_wait = max(self.longest_wait, self.world.now - asked)
            self.world.at(self.world.now + self.seconds, lambda: self.done(engine))

        self.world.ask(Request(self.model, asked, self.interactive, started))

    def done(self, engine: Engine) -> None:
        self.served += 1
        self.world.release(engine)
        self.world.at(self.world.now + self.gap, self.ask)


SECONDS = st.floats(0.05, 3)


@settings(max_examples=25, deadline=None)
@given(seconds=SECONDS, gap=st.floats(0, 3), load=st.floats(0.1, 20), interactive=st.booleans())
def test_two_models_under_a_budget_for_one_do_not_thrash(
    seconds: float, gap: float, load: float, interactive: bool
) -> None:
    world = World({"a": (60,), "b": (60,)}, 100, RULES, load_seconds=load)
    clients = [Client(world, model, seconds, gap, interactive) for model in "ab"]
    world.run(150)
    stay = RULES.residency_seconds
    at_least = min(load, stay) if interactive else max(load, stay)
    assert world.loads <= 1 + 150 / (load + at_least)
    if gap < RULES.pause_seconds:
        patience = RULES.patience if interactive else RULES.batch_patience
        assert world.loads <= 2 + 150 / patience
    assert all(client.served for client in clients)


@settings(max_examples=25, deadline=None)
@given(seconds=SECONDS, load=st.floats(0.1, 20), interactive=st.booleans(), crowd=st.integers(1, 5))
def test_an_endless_stream_for_one_model_does_not_starve_another(
    seconds: float, load: float, interactive: bool, crowd: int
) -> None:
    world = World({"a": (60,), "b": (60,)}, 100, RULES, load_seconds=load)
    for _ in range(crowd):
        Client(world, "a", seconds, 0.0, interactive=True)
    world.run(10)
    other = Client(world, "b", seconds, 50.0, interactive)
    world.run(150)
    patience = RULES.patience if interactive else RULES.batch_patience
    stay = max(load, RULES.residency_seconds)
    assert other.served
    assert other.longest_wait <= max(patience, stay) + seconds + RULES.pause_seconds + 0.1 + 2 * load


def test_while_one_model_is_loaded_its_queue_is_served_before_any_switch() -> None:
    world = World({"a": (60,), "b": (60,)}, 100, RULES)
    order: list[str] = []

    def ask(model: str) -> None:
        def started(engine: Engine) -> None:
            order.append(model)
            world.at(world.now + 0.3, lambda: world.release(engine))

        world.ask(Request(model, world.now, True, started))

    for number in range(12):
        world.at(0.25 * number, lambda number=number: ask("ab"[number % 2]))
    world.run(30)
    assert order == ["a"] * 6 + ["b"] * 6
    assert world.loads == 2
