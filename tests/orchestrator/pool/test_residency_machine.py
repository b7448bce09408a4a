"""The real residency over time: any course of events, models that are asked for in turn, a stream that never ends."""

import asyncio
from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import example, given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orchestrator.engine.errors import EngineError
from orchestrator.pool.dispatch import LeaseRequest
from orchestrator.pool.errors import ModelBroken, ModelTooLarge
from orchestrator.pool.policy import Rules
from orchestrator.registry.models import ModelEntry
from tests.orchestrator.pool.residency_fixture import SLOTS, Request, ResidencyFixture, entry

RULES = Rules(idle_unload_seconds=60, residency_seconds=10, pause_seconds=0.2, patience=5, batch_patience=30)
MODELS = st.sampled_from(["a", "b", "c", "huge", "twin", "hot"])
NUMBERS = st.integers(0, 9)


def models() -> list[ModelEntry]:
    """Return models of which some fit together under a budget of 100, and one does not fit at all."""
    return [
        entry("a", 60),
        entry("b", 60),
        entry("c", 35),
        entry("twin", 30, instances=2),
        entry("hot", 10, residency="hot"),
        entry("huge", 101),
    ]


class AnyCourse(RuleBasedStateMachine):
    """Whatever happens, the fixture's checks hold; and once nothing new comes, everyone who waits has an answer."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = {entry.id: entry for entry in models()}
        self.fixture = ResidencyFixture(list(self.entries.values()), 100, RULES)

    @rule(model=MODELS, interactive=st.booleans())
    def ask(self, model: str, interactive: bool) -> None:
        self.fixture.ask(model, interactive)

    @precondition(lambda self: self.fixture.served)
    @rule(number=NUMBERS)
    def finish(self, number: int) -> None:
        self.fixture.give_back(self.fixture.served[number % len(self.fixture.served)])

    @precondition(lambda self: self.fixture.loading)
    @rule(number=NUMBERS)
    def finish_load(self, number: int) -> None:
        self.fixture.loading[number % len(self.fixture.loading)].set_result(None)
        self.fixture.run(0)

    @precondition(lambda self: self.fixture.stopping)
    @rule(number=NUMBERS)
    def finish_stop(self, number: int) -> None:
        self.fixture.stopping[number % len(self.fixture.stopping)].ended.set_result(None)
        self.fixture.run(0)

    @precondition(lambda self: self.fixture.running)
    @rule(number=NUMBERS)
    def die(self, number: int) -> None:
        self.fixture.kill(self.fixture.running[number % len(self.fixture.running)])

    @precondition(lambda self: self.fixture.loading)
    @rule(number=NUMBERS)
    def fail_to_load(self, number: int) -> None:
        self.fixture.fail_load(self.fixture.loading[number % len(self.fixture.loading)])

    @rule(seconds=st.floats(0, 40))
    def wait(self, seconds: float) -> None:
        self.fixture.run(seconds)

    @precondition(lambda self: self.fixture.waiting)
    @rule(number=NUMBERS)
    def give_up(self, number: int) -> None:
        request = self.fixture.waiting[number % len(self.fixture.waiting)]
        assert request.task is not None
        request.task.cancel()
        self.fixture.requests.remove(request)
        self.fixture.run(0)

    @rule(model=MODELS, pinned=st.booleans())
    def pin(self, model: str, pinned: bool) -> None:
        self.fixture.managed_models[model].pinned = pinned
        self.fixture.do(self.fixture.residency.reconsider)

    @rule(model=MODELS)
    def unload(self, model: str) -> None:
        managed = self.fixture.managed_models[model]
        if not managed.pinned:
            self.fixture.begin(self.fixture.residency.unload(managed))
            self.fixture.run(0)

    @rule(model=MODELS, slots=st.integers(1, 3))
    def adopt(self, model: str, slots: int) -> None:
        """Let the registry say something else of a model, so that its engines have to go."""
        self.entries[model] = replace(self.entries[model], options=replace(self.entries[model].options, slots=slots))
        entries = dict(self.entries)
        self.fixture.do(lambda: self.fixture.residency.adopt(entries, {model}))

    @invariant()
    def holds(self) -> None:
        self.fixture.check()

    def teardown(self) -> None:
        with self.fixture as fixture:
            for _ in range(100):
                for request in fixture.served:
                    fixture.give_back(request)
                for ended in tuple(fixture.loading):
                    ended.set_result(None)
                fixture.run(0)
                for engine in fixture.stopping:
                    engine.ended.set_result(None)
                fixture.run(2.0)
                if not fixture.waiting:
                    break
            pinned = any(managed.pinned and managed.entry.id != "hot" for managed in fixture.managed_models.values())
            assert pinned or not fixture.waiting, "everyone who waits has an answer"
            for request in fixture.requests:
                assert request.replica or isinstance(request.error, EngineError | ModelTooLarge | ModelBroken)


AnyCourse.TestCase.settings = settings(max_examples=20, stateful_step_count=50, deadline=None)
test_any_course_of_events = AnyCourse.TestCase


class Client:
    """Asks for a model again and again, one request after the other, with a gap in between."""

    def __init__(self, fixture: ResidencyFixture, model: str, seconds: float, gap: float, interactive: bool) -> None:
        self.fixture, self.model, self.seconds, self.gap, self.interactive = fixture, model, seconds, gap, interactive
        self.served = 0
        self.longest_wait = 0.0
        self.task = fixture.begin(self.live())

    async def live(self) -> None:
        residency, managed = self.fixture.residency, self.fixture.managed_models[self.model]
        while True:
            asked = self.fixture.now
            replica = await residency.acquire(managed, LeaseRequest(interactive=self.interactive, due=asked))
            self.longest_wait = max(self.longest_wait, self.fixture.now - asked)
            await asyncio.sleep(self.seconds)
            self.served += 1
            residency.release(replica)
            await asyncio.sleep(self.gap)


SECONDS = st.floats(0.05, 3)
TWO = (("a", 60), ("b", 60))


@settings(max_examples=settings().max_examples // 10)
@example(seconds=0.05, gap=0.0, load=5.0, interactive=True)
@given(seconds=SECONDS, gap=st.floats(0, 3), load=st.floats(0.1, 20), interactive=st.booleans())
def test_two_models_under_a_budget_for_one_do_not_thrash(
    seconds: float, gap: float, load: float, interactive: bool
) -> None:
    with ResidencyFixture([entry(*one) for one in TWO], 100, RULES, load, 0.1) as fixture:
        clients = [Client(fixture, model, seconds, gap, interactive) for model in "ab"]
        fixture.run(150)
        stay = RULES.residency_seconds
        at_least = min(load, stay) if interactive else max(load, stay)
        assert fixture.loads <= 1 + 150 / (load + at_least)
        if gap < RULES.pause_seconds:
            patience = RULES.patience if interactive else RULES.batch_patience
            assert fixture.loads <= 2 + 150 / patience
        assert all(client.served for client in clients)


@settings(max_examples=settings().max_examples // 10)
@given(seconds=SECONDS, load=st.floats(0.1, 20), interactive=st.booleans(), crowd=st.integers(1, 5))
def test_an_endless_stream_for_one_model_does_not_starve_another(
    seconds: float, load: float, interactive: bool, crowd: int
) -> None:
    with ResidencyFixture([entry(*one) for one in TWO], 100, RULES, load, 0.1) as fixture:
        for _ in range(crowd):
            Client(fixture, "a", seconds, 0.0, interactive=True)
        fixture.run(10)
        other = Client(fixture, "b", seconds, 50.0, interactive)
        fixture.run(140)
        patience = RULES.patience if interactive else RULES.batch_patience
        stay = max(load, RULES.residency_seconds)
        assert other.served
        assert other.longest_wait <= max(patience, stay) + seconds + RULES.pause_seconds + 0.1 + 2 * load


def test_while_one_model_is_loaded_its_queue_is_served_before_any_switch() -> None:
    with ResidencyFixture([entry(*one) for one in TWO], 100, RULES, 1.0, 0.1) as fixture:
        order: list[str] = []

        async def ask(number: int) -> None:
            model = "ab"[number % 2]
            await asyncio.sleep(0.2 * number)
            replica = await fixture.residency.acquire(fixture.managed_models[model], LeaseRequest(due=fixture.now))
            order.append(model)
            await asyncio.sleep(0.3)
            fixture.residency.release(replica)

        for number in range(12):
            fixture.begin(ask(number))
        fixture.run(30)
        assert order == ["a"] * 6 + ["b"] * 6
        assert fixture.loads == 2


def test_the_queue_of_a_model_that_cannot_be_loaded_gets_the_error() -> None:
    with ResidencyFixture([entry("a", 60)], 100, RULES) as fixture:
        requests: list[Request] = [fixture.ask("a", interactive=True) for _ in range(3)]
        (load,) = fixture.loading
        fixture.fail_load(load, "corrupt")
        assert all(isinstance(request.error, EngineError) for request in requests)


@settings(max_examples=30, deadline=None)
@given(
    crowd=st.lists(st.booleans(), min_size=1, max_size=12),
    loads=st.tuples(st.floats(0.1, 5), st.floats(0.1, 5)),
    done=st.integers(0, 3),
)
def test_no_replica_takes_what_another_one_could_do_that_is_coming(
    crowd: list[bool], loads: tuple[float, float], done: int
) -> None:
    with ResidencyFixture([entry("twin", 30, instances=2)], 100, RULES) as fixture:
        managed = fixture.managed_models["twin"]
        for interactive in crowd:
            fixture.ask("twin", interactive)
        assert len(fixture.loading) == (2 if len(crowd) >= 2 * SLOTS else 1)
        fixture.loading[0].set_result(None)
        fixture.run(loads[0])
        assert sum(one.leases for one in managed.places.replicas) == min(SLOTS, len(crowd))
        first = sorted(not one.interactive for one in fixture.served)
        assert first == sorted(not one for one in crowd)[: len(first)], "interactive requests are served first"
        for request in fixture.served[:done]:
            fixture.give_back(request)
        fixture.check()
        if fixture.loading:
            fixture.loading[0].set_result(None)
            fixture.run(loads[1])
            assert not fixture.waiting
            leases = [one.leases for one in managed.places.replicas]
            assert max(leases) - min(leases) <= 1 or max(leases) <= SLOTS
        fixture.check()
