"""The policy on its own: single decisions first, then any course of events."""

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.pool.policy import Demand, ModelView, PoolActions, PoolBudget, PoolView, ReplicaView, Rules, decide

RULES = Rules(idle_unload_seconds=900, residency_seconds=10, pause_seconds=0.2, patience=5, batch_patience=30)


def _one(model: str, state: str = "absent", number: int = 0, **more: object) -> ReplicaView:
    return ReplicaView(replica_id=(model, number), bytes=60, state=state, **more)  # type: ignore[arg-type]


def _decide(now: float, *models: ModelView, budget: PoolBudget | None = None) -> PoolActions:
    return decide(PoolView(now=now, budget=budget or PoolBudget(100), models=models), RULES)


def _alone(*instances: ReplicaView, demand: Demand | None = None, slots: int = 4) -> ModelView:
    return ModelView(slots=slots, instances=instances, demand=demand)


def _stopped(actions: PoolActions) -> list[str]:
    return [stop.replica_id[0] for stop in actions.stops]


def test_what_fits_is_loaded_when_someone_waits_for_it() -> None:
    assert _decide(0, _alone(_one("a"))) == PoolActions()
    assert _decide(0, _alone(_one("a"), demand=Demand(since=0, interactive_since=0))).loads == (("a", 0),)
    assert _decide(0, _alone(_one("a", "loading"), demand=Demand(since=0, interactive_since=0))).loads == ()
    assert _decide(0, _alone(_one("a", preload_since=0.0))).loads == (("a", 0),)


def test_an_idle_engine_makes_room_and_the_other_is_loaded_when_it_is_gone() -> None:
    waiting = _alone(_one("b"), demand=Demand(since=100, interactive_since=100))
    actions = _decide(100, _alone(_one("a", "ready")), waiting)
    assert (_stopped(actions), actions.loads) == (["a"], ())
    assert _decide(101, _alone(_one("a", "stopping")), waiting) == PoolActions()
    assert _decide(102, _alone(_one("a")), waiting).loads == (("b", 0),)


def test_bytes_that_a_stop_will_free_are_promised_to_one_only() -> None:
    first = _alone(_one("b"), demand=Demand(since=100, interactive_since=100, due=1))
    second = _alone(_one("c"), demand=Demand(since=100, interactive_since=100, due=2))
    actions = _decide(101, _alone(_one("a", "stopping")), second, first)
    assert actions == PoolActions(wake=105)
    assert _decide(101, _alone(_one("a")), second, first).loads == (("b", 0),)


def test_engines_in_use_loading_or_pinned_are_not_stopped() -> None:
    waiting = _alone(_one("b"), demand=Demand(since=0, interactive_since=0))
    for other in (_one("a", "ready", requests=1), _one("a", "loading")):
        assert _stopped(_decide(1000, _alone(other), waiting)) == []
    pinned = _decide(1000, _alone(_one("a", "ready", pinned=True)), waiting)
    assert _stopped(pinned) == []
    assert [(refusal.replica_id, refusal.why.short) for refusal in pinned.refusals] == [(("b", 0), 20)]


def test_a_fresh_engine_stays_for_a_batch_and_for_an_interactive_request_as_long_as_loading_took() -> None:
    fresh = _alone(_one("a", "ready", loaded_at=100, load_seconds=2, last_used=100))
    batch = _alone(_one("b"), demand=Demand(since=100))
    interactive = _alone(_one("b"), demand=Demand(since=100, interactive_since=100))
    assert _decide(109, fresh, batch).wake == 110
    assert _stopped(_decide(109, fresh, batch)) == []
    assert _stopped(_decide(110, fresh, batch)) == ["a"]
    assert _stopped(_decide(101, fresh, interactive)) == []
    assert _decide(101, fresh, interactive).wake == 102
    assert _stopped(_decide(102, fresh, interactive)) == ["a"]


def test_an_interactive_request_leaves_a_fresh_engine_where_it_has_another_way() -> None:
    fresh = _alone(replace(_one("a", "ready", loaded_at=100, load_seconds=2, last_used=50), bytes=60))
    old = _alone(replace(_one("c", "ready", last_used=99), bytes=40))
    waiting = _alone(replace(_one("b"), bytes=40), demand=Demand(since=103, interactive_since=103))
    assert _stopped(_decide(103, fresh, old, waiting)) == ["c"]


def test_an_engine_used_a_moment_ago_is_not_idle() -> None:
    waiting = _alone(_one("b"), demand=Demand(since=100, interactive_since=100))
    used = _alone(_one("a", "ready", last_used=99.9))
    assert _stopped(_decide(100, used, waiting)) == []
    assert _decide(100, used, waiting).wake == 99.9 + 0.2


def test_the_work_of_a_loaded_model_goes_first_until_another_has_waited_too_long() -> None:
    busy = _alone(_one("a", "ready", requests=3))
    waiting = _alone(_one("b"), demand=Demand(since=100, interactive_since=100))
    early = _decide(104, busy, waiting)
    assert (early.draining, early.wake) == (frozenset(), 105)
    assert _decide(105, busy, waiting).draining == {("a", 0)}
    batch = replace(waiting, demand=Demand(since=100))
    assert _decide(129, busy, batch).draining == frozenset()
    assert _decide(130, busy, batch).draining == {("a", 0)}


def test_nothing_runs_dry_any_more_when_the_one_it_was_for_has_gone() -> None:
    draining = _one("a", "ready", requests=1, draining=True)
    assert _decide(200, _alone(draining, demand=Demand(since=150, interactive_since=150))) == PoolActions()


def test_a_fresh_engine_runs_dry_only_after_it_has_stayed() -> None:
    busy = _alone(_one("a", "ready", requests=3, loaded_at=104, load_seconds=4))
    waiting = _alone(_one("b"), demand=Demand(since=100, interactive_since=100))
    actions = _decide(106, busy, waiting)
    assert (actions.draining, actions.wake) == (frozenset(), 108)
    assert _decide(108, busy, waiting).draining == {("a", 0)}


def test_small_models_overtake_only_while_the_large_one_has_patience() -> None:
    busy = _alone(_one("a", "ready", requests=1))
    large = _alone(_one("b"), demand=Demand(since=100, interactive_since=100))
    small = _alone(replace(_one("c"), bytes=30), demand=Demand(since=101, interactive_since=101))
    assert _decide(102, busy, large, small).loads == (("c", 0),)
    assert _decide(105, busy, large, small).loads == ()


def test_the_age_of_a_batch_makes_no_interactive_request_overdue() -> None:
    assert RULES.overdue_at(Demand(since=100)) == 130
    assert RULES.overdue_at(Demand(since=100, interactive_since=110)) == 115
    assert RULES.overdue_at(Demand(since=100, interactive_since=128)) == 130


def test_interactive_before_batch_then_what_is_due_then_age_but_who_has_waited_too_long_is_first() -> None:
    def order(now: float, **demands: Demand) -> str:
        """Say which of them gets the only place."""
        return _decide(now, *(_alone(_one(name), demand=demand) for name, demand in demands.items())).loads[0][0]

    assert order(10, a=Demand(since=1), b=Demand(since=9, interactive_since=9)) == "b"
    assert (
        order(10, a=Demand(since=8, interactive_since=8, due=50), b=Demand(since=9, interactive_since=9, due=40)) == "b"
    )
    assert order(10, a=Demand(since=9, interactive_since=9), b=Demand(since=8, interactive_since=8)) == "b"
    assert order(40, a=Demand(since=1), b=Demand(since=39, interactive_since=39)) == "a"
    assert order(40, a=Demand(since=39, due=-math.inf), b=Demand(since=20, interactive_since=20)) == "b"


def test_what_idles_for_long_is_unloaded_but_never_a_pinned_one() -> None:
    idle = _one("a", "ready", last_used=100)
    assert _decide(999, _alone(idle)) == PoolActions(wake=1000)
    assert _stopped(_decide(1000, _alone(idle))) == ["a"]
    for other in (replace(idle, pinned=True), replace(idle, requests=1)):
        assert _decide(1000, _alone(other)) == PoolActions()


def test_what_is_to_leave_goes_when_it_is_idle() -> None:
    assert _decide(100, _alone(_one("a", "ready", requests=1, leaving=True, last_used=99))).stops == ()
    assert _stopped(_decide(100, _alone(_one("a", "ready", leaving=True, last_used=99)))) == ["a"]


def test_a_model_grows_when_a_whole_batch_waits_and_memory_is_free() -> None:
    def grown(requests: int, budget: int, *others: ModelView) -> PoolActions:
        model = _alone(_one("a", "ready", requests=requests, node=0), _one("a", number=1, node=1))
        return _decide(100, model, *others, budget=PoolBudget(budget))

    assert grown(7, 120).loads == ()
    assert grown(8, 120).loads == (("a", 1),)
    assert grown(8, 119).loads == ()
    idle, waiting = _alone(_one("b", "ready")), _alone(_one("c"), demand=Demand(since=99, interactive_since=99))
    assert grown(8, 160, idle).stops == ()
    assert grown(8, 120, waiting).loads == (("c", 0),)


def test_a_model_grows_by_as_many_engines_as_whole_batches_wait_for() -> None:
    def grown(waiting: int, budget: int) -> int:
        model = _alone(*(_one("a", number=at) for at in range(5)), demand=Demand(since=100, count=waiting))
        return len(_decide(100, model, budget=PoolBudget(budget)).loads)

    assert [grown(waiting, 1000) for waiting in (1, 7, 8, 12, 100)] == [1, 1, 2, 3, 5]
    assert grown(100, 190) == 3


def test_an_instance_is_loaded_on_the_node_that_has_room() -> None:
    pinned = _alone(_one("p", "ready", pinned=True, node=0))
    model = _alone(_one("a", node=0), _one("a", number=1, node=1), demand=Demand(since=100, interactive_since=100))
    assert _decide(100, pinned, model, budget=PoolBudget(200, {0: 100, 1: 100})).loads == (("a", 1),)
    refused = _decide(100, pinned, model, budget=PoolBudget(200, {0: 100, 1: 50})).refusals
    assert [(refusal.why.node, refusal.why.short) for refusal in refused] == [(1, 10)]


@given(st.data())
def test_any_single_decision_keeps_the_promises(data: st.DataObject) -> None:
    number = st.floats(0, 100)
    models = []
    for name in data.draw(st.lists(st.sampled_from("abcdef"), unique=True, min_size=1)):
        size, pinned = data.draw(st.integers(1, 60)), data.draw(st.booleans())
        instances = tuple(
            ReplicaView(
                replica_id=(name, index),
                bytes=size,
                state=data.draw(st.sampled_from(["absent", "loading", "ready", "stopping"])),
                pinned=pinned,
                requests=data.draw(st.integers(0, 9)),
                draining=data.draw(st.booleans()),
                leaving=not pinned and data.draw(st.booleans()),
                loaded_at=data.draw(number),
                load_seconds=data.draw(number),
                last_used=data.draw(number),
            )
            for index in range(data.draw(st.integers(1, 2)))
        )
        demands = st.builds(Demand, since=number, interactive_since=st.just(math.inf) | number, due=number)
        demand = data.draw(st.none() | demands)
        models.append(ModelView(slots=4, instances=instances, demand=demand))
    by_id = {one.replica_id: one for model in models for one in model.instances}
    held = sum(one.bytes for one in by_id.values() if one.state != "absent")
    budget = held + data.draw(st.integers(0, 100))
    actions = _decide(100.0, *models, budget=PoolBudget(budget))

    assert all(by_id[replica_id].state == "absent" for replica_id in actions.loads)
    assert held + sum(by_id[replica_id].bytes for replica_id in actions.loads) <= budget
    assert len(set(actions.loads)) == len(actions.loads)
    stopped = [by_id[stop.replica_id] for stop in actions.stops]
    assert all(one.state == "ready" and not one.requests and not one.pinned for one in stopped)
    drained = [by_id[replica_id] for replica_id in actions.draining]
    assert all(one.state == "ready" and not one.pinned for one in drained)
    assert not {one.replica_id for one in stopped} & actions.draining
    assert actions.wake is None or actions.wake > 100.0
