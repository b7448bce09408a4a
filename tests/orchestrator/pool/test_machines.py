"""Several machines under one policy: memory and cores of each, who may run where, and machines that come and go."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.client.engine import Engine
from orchestrator.pool.dispatch import LeaseRequest
from orchestrator.pool.errors import ModelUnavailable
from orchestrator.pool.machine import Topology
from orchestrator.pool.machines import Machine
from orchestrator.pool.managed_model import ManagedModel
from orchestrator.pool.places import Replica
from orchestrator.pool.policy import Demand, ModelView, PoolBudget, PoolView, ReplicaView, Rules, decide
from orchestrator.pool.pool import Pool
from orchestrator.pool.prompts import hash_prefixes
from orchestrator.pool.replica_choice import Pace, ReplicaCandidate, choose_replica
from orchestrator.registry.forms import ReplicaLimits
from orchestrator.registry.messages import Message
from orchestrator.run.steps.attempt import added
from orchestrator.task.events import AttemptGenerated, Shipped, decode_event, encode_event
from tests.orchestrator.pool.conftest import LoadedRegistry
from tests.orchestrator.pool.pool_use import SHORT
from tests.orchestrator.pool.residency_fixture import ResidencyFixture, entry

RULES = Rules()
MACHINES = ("", "b", "c")
BUDGET = PoolBudget(100, cores=2, machines={"b": PoolBudget(100, cores=4), "c": PoolBudget(50, cores=2)})
NOW = 100.0
SLOTS = 2


def _replica(model: str, number: int, machine: str, state: str = "absent", **more: object) -> ReplicaView:
    return ReplicaView(replica_id=(model, number), bytes=40, state=state, machine=machine, **more)  # type: ignore[arg-type]


def _everywhere(model: str, *states: str, **more: object) -> ModelView:
    instances = zip(MACHINES, states, strict=True)
    replicas = tuple(_replica(model, number, machine, state) for number, (machine, state) in enumerate(instances))
    return ModelView(slots=SLOTS, instances=replicas, **more)  # type: ignore[arg-type]


REPLICAS = st.tuples(
    st.sampled_from(["absent", "loading", "ready", "stopping"]), st.integers(0, 5), st.integers(10, 60), st.booleans()
)
MODELS = st.lists(
    st.tuples(st.tuples(REPLICAS, REPLICAS, REPLICAS), st.integers(0, 9), st.integers(0, 3), st.integers(1, 3)),
    min_size=1,
    max_size=4,
)


def _views(drawn: list[tuple[tuple[tuple[str, int, int, bool], ...], int, int, int]]) -> Iterator[ModelView]:
    room = {machine: BUDGET.of(machine).total for machine in MACHINES}
    for model, (replicas, demand, least, most) in enumerate(drawn):
        instances = []
        for number, (machine, (state, requests, size, on_disk)) in enumerate(zip(MACHINES, replicas, strict=True)):
            fits = state == "absent" or size <= room[machine]  # what is loaded has been admitted
            room[machine] -= size if fits and state != "absent" else 0
            instances.append(
                ReplicaView(
                    replica_id=(f"m{model}", number),
                    bytes=size,
                    state=state if fits else "absent",  # type: ignore[arg-type]
                    machine=machine,
                    requests=requests if state == "ready" and fits else 0,
                    on_disk=on_disk,
                )
            )
        waiting = Demand(since=0.0, interactive_since=0.0, count=demand) if demand else None
        yield ModelView(slots=SLOTS, instances=tuple(instances), demand=waiting, least=min(least, most), most=most)


@given(MODELS)
def test_no_machine_is_given_more_than_it_has(
    drawn: list[tuple[tuple[tuple[str, int, int, bool], ...], int, int, int]],
) -> None:
    models = tuple(_views(drawn))
    actions = decide(PoolView(now=NOW, budget=BUDGET, models=models), RULES)
    replicas = {replica.replica_id: replica for model in models for replica in model.instances}
    for machine in MACHINES:
        held = sum(
            replica.bytes for replica in replicas.values() if replica.machine == machine and replica.state != "absent"
        )
        loads = [replicas[number] for number in actions.loads if replicas[number].machine == machine]
        assert held + sum(replica.bytes for replica in loads) <= max(held, BUDGET.of(machine).total)
    for stop in actions.stops:
        assert replicas[stop.replica_id].requests == 0
    for model in models:
        loaded = [replica for replica in model.instances if replica.state in ("loading", "ready")]
        coming = [number for number in actions.loads if number in {replica.replica_id for replica in model.instances}]
        assert model.most is not None
        assert not coming or len(loaded) + len(coming) <= max(model.most, 1)


def test_a_model_goes_where_its_files_are_and_then_where_cores_are_free() -> None:
    waiting = Demand(since=NOW)

    def load(*instances: ReplicaView, other: ModelView | None = None) -> str:
        model = ModelView(slots=SLOTS, instances=instances, demand=waiting)
        view = PoolView(now=NOW, budget=BUDGET, models=(model, *filter(None, [other])))
        ((_, number),) = decide(view, RULES).loads
        return next(replica.machine for replica in instances if replica.replica_id[1] == number)

    everywhere = [_replica("m", number, machine) for number, machine in enumerate(MACHINES)]
    assert load(*everywhere) == ""
    busy = ModelView(slots=SLOTS, instances=(_replica("x", 0, "", "ready", requests=1, last_used=NOW),))
    assert load(*everywhere, other=busy) == "b"
    away = [replace(replica, on_disk=replica.machine == "c") for replica in everywhere]
    assert load(*away) == "c"


def test_replicas_come_up_to_the_least_at_once_and_to_the_most_with_many_requests() -> None:
    def loads(model: ModelView) -> int:
        return len(decide(PoolView(now=NOW, budget=BUDGET, models=(model,)), RULES).loads)

    used = _replica("m", 0, "", "ready", requests=1, last_used=NOW)
    others = (_replica("m", 1, "b"), _replica("m", 2, "c"))
    assert loads(ModelView(slots=SLOTS, instances=(used, *others), least=2)) == 1
    assert loads(ModelView(slots=SLOTS, instances=(used, *others))) == 0
    crowd = Demand(since=NOW, count=9)
    assert loads(ModelView(slots=SLOTS, instances=(used, *others), demand=crowd)) == 2
    assert loads(ModelView(slots=SLOTS, instances=(used, *others), demand=crowd, most=2)) == 1


@given(st.integers(0, 30), st.integers(0, 3), st.booleans())
def test_a_model_of_servers_gets_an_engine_for_each_whole_batch_beyond_them(
    overflow: int, up: int, served: bool
) -> None:
    instances = tuple(
        _replica("m", number, machine, "ready" if number < up else "absent", last_used=NOW)
        for number, machine in enumerate(MACHINES)
    )
    model = ModelView(slots=SLOTS, instances=instances, served=served, overflow=overflow)
    loads = len(decide(PoolView(now=NOW, budget=BUDGET, models=(model,)), RULES).loads)
    enough = min(len(MACHINES), overflow // SLOTS)  # 40 bytes each, of which every machine has room for one
    assert loads == (max(0, enough - up) if served or up else 0)


def test_what_waits_evicts_on_one_machine_alone() -> None:
    idle = [
        ModelView(slots=SLOTS, instances=(_replica(f"old{machine}", 0, machine, "ready", last_used=at),))
        for at, machine in enumerate(MACHINES)
    ]
    full = PoolBudget(60, machines={"b": PoolBudget(60), "c": PoolBudget(60)})
    model = _everywhere("m", "absent", "absent", "absent", demand=Demand(since=NOW))
    actions = decide(PoolView(now=NOW, budget=full, models=(*idle, model)), RULES)
    assert [stop.replica_id for stop in actions.stops] == [("old", 0)]


# Which replica serves a request

PACE = Pace(prompt_token=0.002, decode=((1, 0.05), (4, 0.08)))
PACES = st.builds(
    lambda prompt, first, more: Pace(prompt, ((1, first), (4, first + more))),
    st.floats(1e-5, 0.01),
    st.floats(1e-3, 0.2),
    st.floats(0, 0.2),
)


def test_the_time_of_a_step_lies_between_those_that_are_known() -> None:
    assert PACE.step(1) == 0.05
    assert PACE.step(4) == 0.08
    assert PACE.step(2) == pytest.approx(0.06)
    assert PACE.step(8) == pytest.approx(0.16)


def test_a_request_goes_where_it_ends_first() -> None:
    slow = Pace(0.02, ((1, 0.5),))
    assert choose_replica([ReplicaCandidate(0, 0, 4, 0, slow), ReplicaCandidate(1, 2, 4, 0, PACE)]) == 1
    held = [ReplicaCandidate(0, 0, 4, 0, PACE), ReplicaCandidate(1, 2, 4, 30, PACE)]
    assert choose_replica(held, blocks=30) == 1
    assert choose_replica(held, blocks=30, answer_tokens=1000) == 0
    full = [ReplicaCandidate(0, 0, 4, 0, PACE), ReplicaCandidate(1, 8, 4, 30, PACE)]
    assert choose_replica(full, blocks=30) == 0


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), PACES), min_size=1, max_size=4), st.integers(9, 20))
def test_no_other_replica_would_end_earlier(loads: list[tuple[int, int, Pace]], blocks: int) -> None:
    replicas = [ReplicaCandidate(at, requests, 4, held, pace) for at, (requests, held, pace) in enumerate(loads)]
    chosen = choose_replica(replicas, blocks)
    assert chosen is not None
    ends = [replica.seconds(loads[replica.number][2], blocks, 128.0) for replica in replicas]
    assert ends[chosen] == min(ends)


@given(PACES, st.integers(0, 5), st.integers(0, 3))
def test_more_requests_or_less_of_the_prompt_never_end_earlier(pace: Pace, requests: int, held: int) -> None:
    replica = ReplicaCandidate(0, requests, 4, held, pace)
    seconds = replica.seconds(pace, 9, 50.0)
    assert replace(replica, requests=requests + 1).seconds(pace, 9, 50.0) >= seconds
    assert replace(replica, held=held + 1).seconds(pace, 9, 50.0) <= seconds


def test_steps_that_share_a_document_stay_on_a_node_until_it_is_saturated() -> None:
    model = ManagedModel.of(replace(entry("m", 10), nodes=("b", "c")), TOPOLOGY, {"b": TOPOLOGY, "c": TOPOLOGY})
    for replica in model.places.replicas:
        replica.state, replica.pace = "ready", PACE
        replica.engine = ALIVE  # type: ignore[assignment]
    document = Message("user", "a long document " * 500)
    chosen = []
    for number in range(6):
        hashes = hash_prefixes((document, Message("user", f"step {number}")))
        serving = model.dispatcher.choose(LeaseRequest(prefix_hashes=hashes))
        assert isinstance(serving, Replica)
        serving.grant(hashes)
        chosen.append(serving.machine)
    slots = model.entry.slots
    assert chosen[:slots] == ["b"] * slots
    assert "c" in chosen


@pytest.mark.parametrize(
    ("nodes", "clustered"), [(("b",), False), (("head",), False), (("b", "c"), True), (("head", "b"), True)]
)
def test_the_pace_of_engines_is_learned_if_there_is_a_choice(nodes: tuple[str, ...], clustered: bool) -> None:
    model = ManagedModel.of(replace(entry("m", 10), nodes=nodes), TOPOLOGY, {"b": TOPOLOGY, "c": TOPOLOGY})
    assert model.places.clustered is clustered


# Machines that come and go

TOPOLOGY = Topology.flat(4, 1 << 34)


class _Alive:
    """What a replica asks of an engine when it is chosen."""

    def __init__(self) -> None:
        self.died = self

    def is_set(self) -> bool:
        return False


ALIVE = _Alive()


def test_a_model_of_a_node_waits_until_the_node_joins() -> None:
    model = replace(entry("m", 60), nodes=("b",))
    with ResidencyFixture([model], 100, RULES, load_seconds=1, stop_seconds=1) as fixture:
        assert fixture.managed_models["m"].why_not is not None
        assert "accepted without a cluster: head" in (fixture.managed_models["m"].why_not or "")
        fixture.machines.await_others()
        fixture.do(fixture.residency.join)
        request = fixture.ask("m", True)
        fixture.run(1000)
        assert fixture.waiting == [request]
        assert fixture.managed_models["m"].status(fixture.now).reason == "none of its nodes has joined: b"
        fixture.join("c")
        fixture.run(10)
        assert fixture.waiting == [request]
        fixture.join("b")
        fixture.run(10)
        assert request.replica is not None
        assert request.replica.machine == "b"
        assert fixture.residency.used == 0
        fixture.give_back(request)


async def test_another_machine_is_named_by_what_it_computes_and_in_the_state_of_the_pool(
    registry_of: LoadedRegistry, tmp_path: Path
) -> None:
    registry = registry_of(here="warm", away="warm")
    models = {**registry.models, "away": replace(registry.models["away"], nodes=("b",))}
    async with Pool(replace(registry, models=models), tmp_path) as pool:
        assert pool.snapshot().machines == {}
        pool.join(Machine(name="b", topology=TOPOLOGY, bytes=1 << 34, start_engine=Engine.start))
        here, away = [(await pool.generate(model, SHORT)).usage for model in ("here", "away")]
        machines = pool.snapshot().machines
        await pool.unload("away")
        await pool.leave("b")
    assert {name: machine.models for name, machine in machines.items()} == {"head": ("here",), "b": ("away",)}
    assert machines["b"].budget == 1 << 34 > machines["b"].used > 0
    assert (here.nodes, away.nodes) == ((), ("b",))
    assert added(away, here, replace(away, nodes=("c", "b"))).nodes == ("b", "c")
    shipped = replace(away, shipped=(Shipped(700, 1 << 20, 0.1, "c"),))
    assert added(away, shipped, shipped).shipped == 2 * shipped.shipped
    assert "shipped" not in encode_event(AttemptGenerated(at=1.0, step="S1", number=1, usage=away))
    assert "nodes" not in encode_event(AttemptGenerated(at=1.0, step="S1", number=1, usage=here))
    event = AttemptGenerated(at=1.0, step="S1", number=1, usage=shipped)
    assert decode_event(encode_event(event)) == event


def test_a_machine_that_is_lost_again_and_again_does_not_break_a_model() -> None:
    with ResidencyFixture([replace(entry("m", 60), nodes=("b",))], 100, RULES, 1, 1) as fixture:
        for _ in range(10):
            fixture.join("b")
            request = fixture.ask("m", True)
            fixture.run(2)
            assert request.replica is not None
            leaving = fixture.leave("b")
            assert leaving.done()
            fixture.give_back(request)
            assert fixture.managed_models["m"].places.replicas == ()
        assert fixture.managed_models["m"].failures.broken_for(fixture.now) == 0


def test_a_lost_machine_passes_its_hot_model_on() -> None:
    hot = replace(entry("m", 60, residency="hot"), nodes=("b", "c"))
    with ResidencyFixture([hot], 100, RULES, 1, 1) as fixture:
        fixture.join("b")
        fixture.run(2)
        fixture.join("c")
        fixture.run(2)
        assert [fixture.place_of(engine)[1].machine for engine in fixture.running] == ["b"]
        assert fixture.leave("b").done()
        fixture.run(2)
        assert [fixture.place_of(engine)[1].machine for engine in fixture.running] == ["c"]


def test_a_machine_that_cannot_have_a_model_is_not_asked_again() -> None:
    with ResidencyFixture([replace(entry("m", 60), nodes=("b", "c"))], 100, RULES, stop_seconds=1) as fixture:
        fixture.join("b")
        fixture.join("c")
        first = fixture.ask("m", True)
        fixture.fail_load(fixture.loading[0], "place")
        (loading,) = fixture.loading
        loading.set_result(None)
        fixture.run(0)
        assert first.replica is not None
        assert first.replica.machine == "c"
        fixture.give_back(first)
        assert fixture.leave("c").done()
        second = fixture.ask("m", True)
        assert isinstance(second.error, ModelUnavailable)
        assert "can run nowhere: file: as the test says" in str(second.error)
        fixture.requests.clear()


def test_replicas_of_one_model_are_on_several_machines() -> None:
    spread = replace(entry("m", 60), replicas=ReplicaLimits(2, 2))
    with ResidencyFixture([spread], 100, RULES, 1, 1) as fixture:
        fixture.join("b")
        fixture.join("c")
        request = fixture.ask("m", True)
        fixture.run(10)
        assert len({fixture.place_of(engine)[1].machine for engine in fixture.running}) == 2
        fixture.give_back(request)
