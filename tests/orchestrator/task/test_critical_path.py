"""Longest chains, slack and figures, against a look at every path."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.planning import PlannedTask
from orchestrator.run.record.forecast import Forecast
from orchestrator.task.analysis import analyze_task
from orchestrator.task.critical_path import (
    CriticalPath,
    Effort,
    critical_path,
    critical_steps,
    critical_steps_of,
    figures,
    measured_seconds,
    slack,
)
from orchestrator.task.events import RoleRates
from orchestrator.task.taskir.parse import task_from

BEFORE = {"S1": (), "S2": ("S1",), "S3": ("S1",), "S4": ("S2", "S3"), "S5": ()}
ORDER = ("S1", "S2", "S3", "S4", "S5")
SECONDS = {"S1": 1.0, "S2": 2.0, "S3": 5.0, "S4": 1.0, "S5": 3.0}


def test_the_longest_chain_is_critical_and_the_others_have_slack() -> None:
    assert critical_path(BEFORE, ORDER, SECONDS) == CriticalPath(("S1", "S3", "S4"), 7.0)
    assert slack(BEFORE, ORDER, SECONDS) == {"S1": 0.0, "S2": 3.0, "S3": 0.0, "S4": 0.0, "S5": 4.0}


def test_a_chain_has_no_slack_whatever_its_sums_round_to() -> None:
    before = {"S1": (), "S2": ("S1",), "S3": ("S2",)}
    assert set(slack(before, list(before), dict.fromkeys(before, 2.6)).values()) == {0.0}


def test_steps_that_never_ran_take_no_time_and_are_not_reported() -> None:
    times = {"S1": (10.0, 11.0), "S2": (11.0, 13.5), "S3": (11.0, None), "S4": (None, None), "S5": (10.0, 9.0)}
    measured = measured_seconds(times)
    assert measured == {"S1": 1.0, "S2": 2.5, "S5": 0.0}
    assert critical_path(BEFORE, ORDER, measured) == CriticalPath(("S1", "S2"), 3.5)
    assert critical_path(BEFORE, ORDER, {}) == CriticalPath((), 0.0)
    assert critical_path({}, (), {}) == CriticalPath((), 0.0)
    assert slack({}, (), {}) == {}


def test_waiting_counts_neither_as_work_nor_for_the_bound() -> None:
    """Three steps that depend on nothing took 3 s each beside each other, and 1 s each of an engine that they shared.

    Alone each would have taken 2 s, so one by one they take 6 s.
    """
    before, seconds = {"S1": (), "S2": (), "S3": ()}, dict.fromkeys(("S1", "S2", "S3"), 3.0)
    found = figures(before, list(before), seconds, dict.fromkeys(before, Effort(1.0, 2.0, 0.8)), wall_seconds=3.0)
    assert (found.work_seconds, found.wall_seconds, found.critical_path.seconds) == (3.0, 3.0, 3.0)
    assert found.concurrency == pytest.approx(1.0)
    assert (found.serial_seconds, found.best_seconds) == (6.0, pytest.approx(2.4))
    assert found.bound == pytest.approx(6.0 / 2.4)
    nothing = figures(BEFORE, ORDER, {}, {}, wall_seconds=0.0)
    assert (nothing.concurrency, nothing.bound, nothing.critical_path.steps) == (0.0, 0.0, ())


def test_a_chain_has_a_bound_of_one() -> None:
    before = {"S1": (), "S2": ("S1",), "S3": ("S2",)}
    found = figures(before, list(before), {}, dict.fromkeys(before, Effort(2.0, 2.0, 0.5)), wall_seconds=7.0)
    assert found.bound == 1.0


def test_critical_steps_count_the_longest_of_what_runs_side_by_side() -> None:
    assert critical_steps([1, 1], [[3, 2], [1]]) == 1 + 3 + 1 + 1
    assert critical_steps([2], []) == 2
    assert critical_steps([], [[], [4]]) == 4
    assert critical_steps_of((("S1", "S2"), ("S3",)), {"S1": 1, "S2": 3}, planning=1) == 1 + 3 + 0


GRAPHS = st.lists(st.tuples(st.integers(0, 100), st.sets(st.integers(0, 7), max_size=3)), max_size=8)


Plan = Sequence[tuple[set[int], tuple[float, float, float]]]
EFFORTS = st.tuples(st.floats(0, 10), st.floats(0, 1), st.floats(0, 1))
"""Seconds alone, the part of them that packing leaves, and how much of that is lost again."""


PLANS = st.lists(st.tuples(st.sets(st.integers(0, 7), max_size=3), EFFORTS), min_size=1, max_size=8)
"""The numbers of the steps that each step waits for, as far as they are earlier ones, and its effort."""


def order_of(drawn: Plan) -> dict[str, tuple[str, ...]]:
    return {f"S{n}": tuple(f"S{m}" for m in sorted(waits) if m < n) for n, (waits, _) in enumerate(drawn)}


def efforts_of(drawn: Plan) -> dict[str, Effort]:
    efforts = dict[str, Effort]()
    for number, (_, (alone, packing, loss)) in enumerate(drawn):
        packed = alone * packing
        efforts[f"S{number}"] = Effort(packed + loss * (alone - packed), alone, packed)
    return efforts


def run_in_waves(
    before: Mapping[str, Sequence[str]], efforts: Mapping[str, Effort], slots: int, waited: float = 0.0
) -> tuple[dict[str, float], float]:
    """Return how long the steps took, and the whole. They run in waves of at most as many as there are slots, the
    shares of a wave one after the other. `waited` passes before each wave computes, as a part of its steps.
    """
    seconds, done, wall = dict[str, float](), set[str](), 0.0
    while len(done) < len(efforts):
        ready = [step for step in efforts if step not in done and done.issuperset(before[step])][:slots]
        one = len(ready) == 1
        took = max(sum(efforts[step].work for step in ready), max(efforts[step].alone for step in ready))
        took = waited + (efforts[ready[0]].alone if one else took)
        seconds.update(dict.fromkeys(ready, took))
        done, wall = done | set(ready), wall + took
    return seconds, wall


@given(PLANS, st.integers(1, 4))
def test_no_schedule_of_an_engine_is_faster_than_the_bound(drawn: Plan, slots: int) -> None:
    before, efforts = order_of(drawn), efforts_of(drawn)
    seconds, wall = run_in_waves(before, efforts, slots)
    found = figures(before, [*before], seconds, efforts, wall)
    assert found.best_seconds <= wall * (1 + 1e-9)
    if wall > 0:
        assert found.serial_seconds / wall <= found.bound * (1 + 1e-9)
    if found.bound:
        assert found.bound >= 1 - 1e-9


@given(PLANS, st.integers(1, 4), st.floats(0, 5), st.floats(1 / 16, 16))
def test_predicted_and_measured_speedups_are_at_most_the_bound(
    drawn: Plan, slots: int, waited: float, pace: float
) -> None:
    """On an engine that takes what the step costs say, also one by one, whatever steps wait and whatever pace earlier
    runs had.
    """
    before, efforts = order_of(drawn), efforts_of(drawn)
    steps = [
        {"id": name, "actor": f"role of {name}", "action": "a", "outputs": [], "depends_on": [*earlier]}
        for name, earlier in before.items()
    ]
    task = task_from({"objective": "o", "plan": {"steps": steps}})
    rates = {
        f"role of {name}": RoleRates(
            prompt_tokens=0.0,
            output_tokens=100.0 * effort.alone,
            decode_rate=100.0,
            packing=effort.packed / effort.alone if effort.alone > 0 else 0.0,
        )
        for name, effort in efforts.items()
    }
    forecast = Forecast.of(PlannedTask(task), analyze_task(task), rates, pace=pace)
    seconds, wall = run_in_waves(before, efforts, slots, waited)
    found = figures(before, [*before], seconds, efforts, wall)
    assert forecast.speedup <= forecast.bound * (1 + 1e-9)
    assert forecast.bound <= found.bound * (1 + 1e-6), "the run itself is a schedule, too"
    if wall > 0:
        measured = found.serial_seconds / wall
        assert measured <= forecast.bound * (1 + 1e-6)
        assert measured <= found.bound * (1 + 1e-9)
        assert found.concurrency <= found.bound * (1 + 1e-6), "of the work that there was, steps shared some"


@given(GRAPHS)
def test_path_and_slack_agree_with_a_look_at_every_path(drawn: list[tuple[int, set[int]]]) -> None:
    order = [f"S{n}" for n in range(len(drawn))]
    before = {f"S{n}": tuple(f"S{m}" for m in sorted(waits) if m < n) for n, (_, waits) in enumerate(drawn)}
    seconds = {f"S{n}": float(length) for n, (length, _) in enumerate(drawn)}

    def paths(step: str) -> list[list[str]]:
        return [[*path, step] for earlier in before[step] for path in paths(earlier)] or [[step]]

    every = [path for step in order for path in paths(step)]
    longest = max((sum(map(seconds.__getitem__, path)) for path in every), default=0.0)
    found = critical_path(before, order, seconds)
    assert found.seconds == longest
    assert list(found.steps) in every or not drawn
    assert sum(map(seconds.__getitem__, found.steps)) == longest
    spare = slack(before, order, seconds)
    assert all(spare[step] == 0 for step in found.steps)
    for step in order:
        through = {**seconds, step: seconds[step] + spare[step]}
        assert critical_path(before, order, through).seconds == longest
        assert critical_path(before, order, {**through, step: through[step] + 1}).seconds == longest + 1
