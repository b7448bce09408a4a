"""The queue of ready steps against a plain list of them, and the ranks that order it."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.scheduler.queue import (
    ALL,
    WORKERS,
    ConcurrencyLimits,
    Rank,
    ReadyQueue,
    SortKey,
    longest_chains,
    rank,
)
from orchestrator.task.analysis import analyze
from orchestrator.task.taskir.models import Agent, Parallelism
from tests.orchestrator.scheduler_driver import step

ROLES = ("worker", "coder", "judge", None)
LIMITS = ConcurrencyLimits({ALL: 3, WORKERS: 2, ("role", "coder"): 1}, frozenset({"worker", "coder"}))

actions = st.one_of(
    st.tuples(st.just("push"), st.sampled_from(ROLES), st.integers(0, 3)),
    st.tuples(st.just("remove"), st.integers(0, 99), st.none()),
    st.tuples(st.just("start"), st.none(), st.none()),
    st.tuples(st.just("release"), st.integers(0, 99), st.none()),
    st.tuples(st.just("replace"), st.integers(0, 9), st.none()),
)


@given(st.lists(actions, max_size=40))
def test_the_queue_gives_the_most_urgent_step_that_the_limits_admit(
    story: list[tuple[str, str | int | None, int | None]],
) -> None:
    queue = ReadyQueue(LIMITS)
    ready: dict[str, tuple[SortKey, str | None]] = {}
    held: dict[str, str | None] = {}

    def admitted(role: str | None) -> bool:
        lanes = [lane for holder in held.values() for lane in LIMITS.lanes(holder)]
        return all(lanes.count(lane) < LIMITS.slots.get(lane, inf) for lane in LIMITS.lanes(role))

    for number, (what, argument, urgency) in enumerate(story):
        if what == "push":
            place = (float(urgency or 0), number, 0)
            ready[f"S{number}"] = (place, argument)  # type: ignore[assignment]
            queue.push(f"S{number}", argument, place)  # type: ignore[arg-type]
        elif what == "remove" and ready:
            gone = sorted(ready)[int(argument or 0) % len(ready)]
            place, _ = ready.pop(gone)
            queue.remove(gone)
            if number % 2:  # a retry, in the same or in another role
                ready[gone] = (place, "coder")
                queue.push(gone, "coder", place)
        elif what == "start" and (first := queue.first()):
            _, held[first] = ready.pop(first)
            queue.remove(first)
            queue.hold(first, held[first])
        elif what == "release" and held:
            freed = sorted(held)[int(argument or 0) % len(held)]
            del held[freed]
            queue.release(freed)
            queue.release(freed)  # what holds no slot has none to give back
        elif what == "replace":
            ready = {
                name: ((-place[0] * int(argument or 0), *place[1:]), role) for name, (place, role) in ready.items()
            }
            queue.replace({name: place for name, (place, _) in ready.items()})

        eligible = sorted((place, name) for name, (place, role) in ready.items() if admitted(role))
        assert queue.first() == (eligible[0][1] if eligible else None)
        assert queue.ready == ready.keys()
        assert queue.holders == held


def test_limits_are_the_strictest_of_those_given() -> None:
    agents = (
        Agent(tier="C", role="scout", max_concurrency=3),
        Agent(tier="C", role="scout", max_concurrency=2),
        Agent(tier="B", role="coder"),
    )
    limits = ConcurrencyLimits.of("as-planned", Parallelism(max_concurrent_steps=7, max_concurrent_workers=5), agents)
    assert limits.slots == {ALL: 7, WORKERS: 5, ("role", "scout"): 2, ("role", "coder"): inf}
    assert limits.workers == {"worker", "scout"}
    assert ConcurrencyLimits.of("serial", Parallelism(max_concurrent_steps=7), ()).slots == {ALL: 1, WORKERS: inf}
    assert ConcurrencyLimits.of("as-planned", Parallelism(), ()).slots == {ALL: inf, WORKERS: inf}


def test_ranks_follow_the_longest_chain_of_work() -> None:
    graph = analyze([step(1), step(2, 1), step(3, 1), step(4, 2, 3), step(5)])
    seconds = {"S1": 2.0, "S2": 5.0, "S3": 1.0, "S4": 3.0, "S5": 9.0}
    assert longest_chains(graph, seconds) == {"S1": 10.0, "S2": 8.0, "S3": 4.0, "S4": 3.0, "S5": 9.0}
    assert rank(graph, "as-planned", seconds) == {
        "S1": Rank(0.0, (-10.0, 0)),
        "S2": Rank(0.0, (-8.0, 1)),
        "S3": Rank(4.0, (-4.0, 2)),
        "S4": Rank(0.0, (-3.0, 3)),
        "S5": Rank(1.0, (-9.0, 4)),
    }


def test_serial_ranks_are_topological_then_by_document() -> None:
    graph = analyze([step(1, 3), step(2), step(3)], mode="serial")
    places = {name: ranked.place for name, ranked in rank(graph, "serial", dict.fromkeys(graph.steps, 1.0)).items()}
    assert sorted(places, key=places.__getitem__) == ["S2", "S3", "S1"]
