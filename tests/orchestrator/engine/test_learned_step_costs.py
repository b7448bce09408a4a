"""What is known of a model with each number of threads, and how what is wrong comes right."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.step_cost.learned import (
    DRAFTED_LEARNED_EVERY,
    LEARN_ALL_FIRST,
    LEARNED_EVERY,
    LearnedStepCosts,
)
from orchestrator.engine.step_cost.model import SIZES, Points, StepCostModel, best_decode_width

COSTS = StepCostModel(Points((1, 2), (1.0, 1.5)), Points((1, 2), (1.0, 1.2)), prefill=0.2, per_cell=0.001)
STEPS = 200
"""After so many steps, whatever was believed at first has come right."""


def test_other_threads_begin_with_what_is_known_and_learn_for_themselves() -> None:
    learned = LearnedStepCosts(2, COSTS)
    learned.use_threads(1)
    assert learned.current == COSTS
    learned.observe(1, 1, 1.2, 10)
    slower = learned.current
    assert slower.seconds(1, 1) > COSTS.seconds(1, 1)
    learned.use_threads(2)
    assert learned.current == COSTS
    learned.use_threads(1)
    assert learned.current == slower


def test_other_threads_begin_with_what_was_measured_with_them_before() -> None:
    known = StepCostModel(Points((1, 2), (2.0, 3.0)), Points((1, 2), (2.0, 2.4)), prefill=0.4, per_cell=0.002)
    learned = LearnedStepCosts(2, COSTS, known={1: known}.get)
    learned.use_threads(1)
    assert (learned.current, learned.measured) == (known, True)
    learned.use_threads(3)
    assert (learned.current, learned.measured) == (known, False)
    assert learned.for_threads(2) == COSTS


def test_a_filled_step_tells_what_its_width_takes() -> None:
    filled, plain = LearnedStepCosts(2, COSTS), LearnedStepCosts(2, COSTS)
    filled.observe(1, 1, 1.6, 10, width=2)
    plain.observe(2, 2, 1.6, 20)
    assert filled.current == plain.current


def changes(learned: LearnedStepCosts, steps: list[tuple[int, float]]) -> int:
    """Observe steps of one sequence, as (tokens, seconds), and return how often the costs changed."""
    count = 0
    for tokens, seconds in steps:
        before = learned.current
        learned.observe(tokens, 1, seconds, 0)
        count += learned.current is not before
    return count


def test_all_first_steps_are_learned_from_and_then_few() -> None:
    learned = LearnedStepCosts(2, COSTS)
    assert changes(learned, [(1, 1.2)] * LEARN_ALL_FIRST) == LEARN_ALL_FIRST
    assert changes(learned, [(1, 1.2)] * 100 * LEARNED_EVERY) == 100


def test_steps_with_drafts_are_learned_from_although_others_come_between() -> None:
    learned = LearnedStepCosts(2, COSTS)
    changes(learned, [(1, 1.0), (2, 1.5)] * LEARN_ALL_FIRST)
    before = learned.current.seconds(2, 1)
    changes(learned, [(2, 1.6), (1, 1.0)] * 10 * DRAFTED_LEARNED_EVERY)
    assert learned.current.seconds(2, 1) > before


def test_the_second_of_a_few_steps_without_drafts_tells_what_drafts_save() -> None:
    learned = LearnedStepCosts(2, COSTS)
    for _ in range(LEARN_ALL_FIRST + 1):
        learned.observe(1, 1, 1.0, 0)
        learned.observe(2, 1, 1.5, 0)
    for _ in range(3):
        learned.observe(2, 1, 1.5, 0)
        before = learned.current
        learned.observe(1, 1, 1.4, 0)
        assert learned.current is before, "llama.cpp laid out another step than the one before"
        learned.observe(1, 1, 1.4, 0)
        assert learned.current.seconds(1, 1) > before.seconds(1, 1)


def test_steps_with_drafts_that_were_seen_at_a_bad_time_get_their_shape_back() -> None:
    learned = LearnedStepCosts(2, COSTS)
    for _ in range(LEARN_ALL_FIRST):
        learned.observe(2, 1, 1.8, 0)
    assert learned.current.seconds(2, 1) > 1.6
    for _ in range(400 * LEARNED_EVERY):
        learned.observe(1, 1, 1.3, 0)
    assert learned.current.seconds(1, 1) == pytest.approx(1.3, rel=0.01)
    assert learned.current.seconds(2, 1) == pytest.approx(1.3 * 1.2, rel=0.05)


def test_steps_with_drafts_that_are_done_are_known_as_they_are() -> None:
    learned = LearnedStepCosts(2, COSTS)
    for _ in range(400 * LEARNED_EVERY):
        learned.observe(1, 1, 1.0, 0)
        learned.observe(2, 1, 1.7, 0)
    assert learned.current.seconds(2, 1) == pytest.approx(1.7, rel=0.1)


def test_the_favoured_width_is_found_anew_when_others_run_or_something_is_learned() -> None:
    dear = StepCostModel(Points((1, 2), (1.0, 2.2)), Points((1, 2), (1.0, 1.2)), prefill=0.2, per_cell=0.0)
    learned = LearnedStepCosts(2, dear, widest=2)
    for depths in ([9], [9, 9], [9], [9, 9]):
        assert learned.next_decode_width(depths) in (1, len(depths))
    while learned.current.seconds(2, 2) > 1.5 * learned.current.seconds(1, 1):
        learned.observe(2, 2, 1.4, 0)
        learned.observe(1, 1, 1.0, 0)
    assert (
        [learned.next_decode_width([9, 9]) for _ in range(100)]
        == [2] * 100
        == [best_decode_width(learned.current, [9, 9])] * 100
    )


# What is wrong at first


def machine(cores: float, first: float) -> StepCostModel:
    """Return what steps really cost: a step of n tokens costs as `cores` of them for nothing, and the rest each."""
    points = Points(SIZES, tuple(first * max(1.0, 0.6 + size / (1 + cores)) for size in SIZES))
    points = Points(SIZES, (first, *points.seconds[1:]))
    return StepCostModel(points, points, first / (1 + cores), first * 1e-4)


def scaled(costs: StepCostModel, factor: float) -> StepCostModel:
    decode, verify = (
        Points(each.sizes, tuple(factor * s for s in each.seconds)) for each in (costs.decode, costs.verify)
    )
    return StepCostModel(decode, verify, factor * costs.prefill, factor * costs.per_cell)


def only_one(costs: StepCostModel) -> StepCostModel:
    first = Points((1,), (3.05,))
    return StepCostModel(first, first, 3.05, 0.0)


def falling(costs: StepCostModel) -> StepCostModel:
    times = tuple(costs.decode.seconds[0] / size for size in SIZES)
    return StepCostModel(Points(SIZES, times), Points(SIZES, times), costs.prefill, 0.0)


def rising(costs: StepCostModel) -> StepCostModel:
    first = costs.decode.seconds[0]
    times = tuple(first * size**1.1 for size in SIZES)
    return StepCostModel(Points(SIZES, times), Points(SIZES, times), 2 * first, 0.0)


def wide_is_dear(costs: StepCostModel) -> StepCostModel:
    times = tuple(costs.decode.seconds[0] * (size if size > 8 else 1.0) * 0.99 for size in SIZES)
    points = Points(SIZES, (times[0], *times[1:]))
    return StepCostModel(points, points, costs.prefill, 0.0)


POISONS: dict[str, Callable[[StepCostModel], StepCostModel]] = {
    "a thousand times too slow": lambda true: scaled(true, 1000.0),
    "a thousand times too fast": lambda true: scaled(true, 0.001),
    "one size only": only_one,
    "falling": falling,
    "every token dearer than the one before": rising,
    "wide steps dear": wide_is_dear,
}


def run_for(learned: LearnedStepCosts, true: StepCostModel, running: int, steps: int, *, depth: int = 50) -> None:
    """Decode for so many steps on a machine on which steps cost what `true` says."""
    for _ in range(steps):
        width = learned.next_decode_width([depth] * running)
        assert 1 <= width <= running
        cells = depth * width
        learned.observe(width, width, true.seconds(width, width, cells), cells)


@given(st.sampled_from(sorted(POISONS)), st.floats(0.3, 20.0), st.floats(1e-4, 0.3), st.integers(2, 16))
def test_a_wrong_cost_model_comes_right_within_some_steps(
    poison: str, cores: float, first: float, running: int
) -> None:
    true = machine(cores, first)
    learned = LearnedStepCosts(2, POISONS[poison](true), widest=16)
    run_for(learned, true, running, STEPS)
    width = best_decode_width(learned.current, [50] * running)
    rates = [wide / true.seconds(wide, wide, 50 * wide) for wide in range(1, running + 1)]
    assert rates[width - 1] >= 0.85 * max(rates)
    assert learned.current.seconds(width, width, 50 * width) == pytest.approx(
        true.seconds(width, width, 50 * width), rel=0.3
    )


@given(st.sampled_from(sorted(POISONS)), st.floats(0.3, 20.0), st.integers(1, 12))
def test_a_wrong_cost_model_comes_right_for_drafts_that_are_tried(poison: str, cores: float, drafts: int) -> None:
    true = machine(cores, 0.01)
    learned = LearnedStepCosts(2, POISONS[poison](true), widest=16)
    for step in range(STEPS):
        tokens = 1 + drafts if step % 2 else 1
        learned.observe(tokens, 1, true.seconds(tokens, 1, 50 * tokens), 50 * tokens)
    for tokens in (1, 1 + drafts):
        assert learned.current.seconds(tokens, 1) == pytest.approx(true.seconds(tokens, 1), rel=0.3)


def test_a_cost_model_that_is_only_assumed_is_made_right_and_counts_as_unmeasured() -> None:
    true = machine(4.0, 0.02)
    learned = LearnedStepCosts(2, StepCostModel.assumed(0.5, most=16), widest=16, trusted=False)
    assert not learned.measured
    run_for(learned, true, 16, STEPS)
    assert learned.current.seconds(16, 16) == pytest.approx(true.seconds(16, 16), rel=0.15)
    assert not learned.measured
    learned.adopt_measured(2, true)
    assert (learned.current, learned.measured) == (true, True)


def test_a_machine_that_gets_slower_for_good_is_followed_and_its_cost_model_is_measured_again() -> None:
    true = machine(4.0, 0.02)
    learned = LearnedStepCosts(2, true, widest=16)
    run_for(learned, scaled(true, 3.0), 16, STEPS)
    assert not learned.measured
    assert learned.current.seconds(16, 16) == pytest.approx(3 * true.seconds(16, 16), rel=0.1)


@pytest.mark.parametrize("wrong", [1.15, 1.3, 1.5])
def test_a_width_that_was_measured_in_a_bad_moment_leaves_no_sequence_out_for_long(wrong: float) -> None:
    true = machine(1.0, 0.02)
    times = [seconds * (wrong if size == 16 else 1.0) for size, seconds in zip(SIZES, true.decode.seconds, strict=True)]
    learned = LearnedStepCosts(2, replace(true, decode=Points(SIZES, tuple(times))), widest=16)
    assert learned.best_decode_width([50] * 16) < 16
    run_for(learned, true, 16, STEPS)
    assert learned.best_decode_width([50] * 16) == 16
    assert not learned.measured, "it is measured again when there is nothing to do"


@given(st.lists(st.tuples(st.integers(1, 16), st.integers(1, 70)), max_size=12), st.floats(0.5, 2.0))
def test_any_number_of_sequences_may_come_and_go_while_some_are_left_out(
    course: list[tuple[int, int]], wrong: float
) -> None:
    true = wide_is_dear(machine(1.0, 0.02))
    learned = LearnedStepCosts(2, true, widest=16)
    for running, steps in course:
        for _ in range(steps):
            width = learned.next_decode_width([50] * running)
            assert 1 <= width <= running
            computed = min(width, 1 + steps % 16)  # others have finished, or have other adapters
            seconds = wrong * true.seconds(computed, computed, 50 * computed)
            learned.observe(computed, computed, seconds, 50 * computed)


def test_where_wide_steps_are_slow_sequences_stay_left_out() -> None:
    true = wide_is_dear(machine(4.0, 0.02))
    learned = LearnedStepCosts(2, true, widest=16)
    run_for(learned, true, 16, 10 * STEPS)
    assert learned.measured
    assert learned.best_decode_width([50] * 16) == 8


def test_where_two_sequences_are_slower_together_than_apart_one_stays_left_out() -> None:
    points = Points((1, 2), (0.02, 0.042))
    true = StepCostModel(points, points, 0.01, 0.0)
    learned = LearnedStepCosts(2, true, widest=2)
    run_for(learned, true, 2, 10 * STEPS)
    assert learned.measured
    assert learned.best_decode_width([50] * 2) == 1


def test_a_few_stalled_steps_change_little() -> None:
    true = machine(4.0, 0.02)
    learned = LearnedStepCosts(2, true, widest=16)
    run_for(learned, true, 16, 10)
    run_for(learned, scaled(true, 50.0), 16, 3)
    assert learned.measured
    assert learned.current.seconds(16, 16) < 1.5 * true.seconds(16, 16)


def test_steps_beside_other_work_teach_nothing_unless_that_never_ends() -> None:
    true = machine(4.0, 0.02)
    learned = LearnedStepCosts(2, true, widest=16)
    for _ in range(50):
        learned.observe(16, 16, 100 * true.seconds(16, 16), 0, disturbed=True)
    assert learned.current == true
    for _ in range(20 * LEARNED_EVERY):
        learned.observe(16, 16, 2.5 * true.seconds(16, 16), 0, disturbed=True)
    assert learned.current.seconds(16, 16) == pytest.approx(2.5 * true.seconds(16, 16), rel=0.1)


@pytest.mark.parametrize(
    ("costs", "why"),
    [
        (only_one(COSTS), "only steps of one token"),
        (falling(COSTS), "of the time of a smaller one"),
        (StepCostModel(Points((1, 2), (1.0, 900.0)), Points((1,), (1.0,)), 0.2, 0.0), "900.0 times as long"),
        (StepCostModel(Points((1, 2), (1.0, 1.5)), Points((1,), (1.0,)), 50.0, 0.0), "a prompt token takes 50.0 s"),
    ],
)
def test_an_impossible_cost_model_is_reported(costs: StepCostModel, why: str) -> None:
    assert why in str(costs.implausible(most=4))
    assert COSTS.implausible(most=4) is None
    assert only_one(COSTS).implausible(most=1) is None, "an engine with one slot has no others"


@given(st.floats(1e-6, 100.0), st.integers(1, 128))
def test_what_is_assumed_is_possible_and_favours_width(seconds: float, most: int) -> None:
    assumed = StepCostModel.assumed(seconds, most=most)
    assert assumed.implausible(most=most) is None
    assert math.isclose(assumed.seconds(1, 1), seconds)
    running = min(most, 64)
    assert best_decode_width(assumed, [0] * running) == running
