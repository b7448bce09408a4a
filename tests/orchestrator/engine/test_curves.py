"""What is known of a model with each number of threads, and how what is wrong comes right."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engine.step_cost.learned import DRAFTED_LEARNED_EVERY, FIRST, LEARNED_EVERY, Curves
from orchestrator.engine.step_cost.model import SIZES, Curve, Points, favoured_width

CURVE = Curve(Points((1, 2), (1.0, 1.5)), Points((1, 2), (1.0, 1.2)), prefill=0.2, per_cell=0.001)
STEPS = 200
"""After so many steps, whatever was believed at first has come right."""


def test_other_threads_begin_with_what_is_known_and_learn_for_themselves() -> None:
    curves = Curves(2, CURVE)
    curves.use(1)
    assert curves.now == CURVE
    curves.observe(1, 1, 1.2, 10)
    slower = curves.now
    assert slower.seconds(1, 1) > CURVE.seconds(1, 1)
    curves.use(2)
    assert curves.now == CURVE
    curves.use(1)
    assert curves.now == slower


def test_other_threads_begin_with_what_was_measured_with_them_before() -> None:
    one = Curve(Points((1, 2), (2.0, 3.0)), Points((1, 2), (2.0, 2.4)), prefill=0.4, per_cell=0.002)
    curves = Curves(2, CURVE, known={1: one}.get)
    curves.use(1)
    assert (curves.now, curves.measured) == (one, True)
    curves.use(3)
    assert (curves.now, curves.measured) == (one, False)
    assert curves.of(2) == CURVE


def test_a_filled_step_tells_what_its_width_takes() -> None:
    filled, plain = Curves(2, CURVE), Curves(2, CURVE)
    filled.observe(1, 1, 1.6, 10, width=2)
    plain.observe(2, 2, 1.6, 20)
    assert filled.now == plain.now


def test_all_first_steps_are_learned_from_and_then_one_of_some() -> None:
    curves = Curves(2, CURVE)
    seen = [curves.now]
    steps = FIRST + 2 * LEARNED_EVERY
    for _ in range(steps):
        curves.observe(1, 1, 1.2, 0)
        seen.append(curves.now)
    changed = [index for index in range(steps) if seen[index + 1] is not seen[index]]
    assert changed == [*range(FIRST), *range(FIRST, steps, LEARNED_EVERY)]


def test_steps_with_drafts_are_counted_by_themselves() -> None:
    curves = Curves(2, CURVE)
    for _ in range(FIRST):
        curves.observe(1, 1, 1.0, 0)
        curves.observe(2, 1, 1.5, 0)
    learned = 0
    for _ in range(10 * DRAFTED_LEARNED_EVERY):
        before = curves.now
        curves.observe(2, 1, 1.6, 0)
        learned += curves.now is not before
        curves.observe(1, 1, 1.0, 0)
    assert learned == 10


def test_the_second_of_a_few_steps_without_drafts_tells_what_drafts_save() -> None:
    curves = Curves(2, CURVE)
    for _ in range(FIRST + 1):
        curves.observe(1, 1, 1.0, 0)
        curves.observe(2, 1, 1.5, 0)
    for _ in range(3):
        curves.observe(2, 1, 1.5, 0)
        before = curves.now
        curves.observe(1, 1, 1.4, 0)
        assert curves.now is before, "llama.cpp laid out another step than the one before"
        curves.observe(1, 1, 1.4, 0)
        assert curves.now.seconds(1, 1) > before.seconds(1, 1)


def test_steps_with_drafts_that_were_seen_at_a_bad_time_get_their_shape_back() -> None:
    curves = Curves(2, CURVE)
    for _ in range(FIRST):
        curves.observe(2, 1, 1.8, 0)
    assert curves.now.seconds(2, 1) > 1.6
    for _ in range(400 * LEARNED_EVERY):
        curves.observe(1, 1, 1.3, 0)
    assert curves.now.seconds(1, 1) == pytest.approx(1.3, rel=0.01)
    assert curves.now.seconds(2, 1) == pytest.approx(1.3 * 1.2, rel=0.05)


def test_steps_with_drafts_that_are_done_are_known_as_they_are() -> None:
    curves = Curves(2, CURVE)
    for _ in range(400 * LEARNED_EVERY):
        curves.observe(1, 1, 1.0, 0)
        curves.observe(2, 1, 1.7, 0)
    assert curves.now.seconds(2, 1) == pytest.approx(1.7, rel=0.1)


def test_the_favoured_width_is_found_anew_when_others_run_or_something_is_learned() -> None:
    dear = Curve(Points((1, 2), (1.0, 2.2)), Points((1, 2), (1.0, 1.2)), prefill=0.2, per_cell=0.0)
    curves = Curves(2, dear, widest=2)
    for depths in ([9], [9, 9], [9], [9, 9]):
        assert curves.next_width(depths) in (1, len(depths))
    while curves.now.seconds(2, 2) > 1.5 * curves.now.seconds(1, 1):
        curves.observe(2, 2, 1.4, 0)
        curves.observe(1, 1, 1.0, 0)
    assert [curves.next_width([9, 9]) for _ in range(100)] == [2] * 100 == [favoured_width(curves.now, [9, 9])] * 100


# What is wrong at first


def machine(cores: float, first: float) -> Curve:
    """Return what steps really cost: a step of n tokens costs as `cores` of them for nothing, and the rest each."""
    points = Points(SIZES, tuple(first * max(1.0, 0.6 + size / (1 + cores)) for size in SIZES))
    points = Points(SIZES, (first, *points.seconds[1:]))
    return Curve(points, points, first / (1 + cores), first * 1e-4)


def scaled(curve: Curve, factor: float) -> Curve:
    many, one = (Points(each.sizes, tuple(factor * s for s in each.seconds)) for each in (curve.many, curve.one))
    return Curve(many, one, factor * curve.prefill, factor * curve.per_cell)


def only_one(curve: Curve) -> Curve:
    first = Points((1,), (3.05,))
    return Curve(first, first, 3.05, 0.0)


def falling(curve: Curve) -> Curve:
    times = tuple(curve.many.seconds[0] / size for size in SIZES)
    return Curve(Points(SIZES, times), Points(SIZES, times), curve.prefill, 0.0)


def rising(curve: Curve) -> Curve:
    first = curve.many.seconds[0]
    times = tuple(first * size**1.1 for size in SIZES)
    return Curve(Points(SIZES, times), Points(SIZES, times), 2 * first, 0.0)


def wide_is_dear(curve: Curve) -> Curve:
    times = tuple(curve.many.seconds[0] * (size if size > 8 else 1.0) * 0.99 for size in SIZES)
    points = Points(SIZES, (times[0], *times[1:]))
    return Curve(points, points, curve.prefill, 0.0)


POISONS: dict[str, Callable[[Curve], Curve]] = {
    "a thousand times too slow": lambda true: scaled(true, 1000.0),
    "a thousand times too fast": lambda true: scaled(true, 0.001),
    "one size only": only_one,
    "falling": falling,
    "every token dearer than the one before": rising,
    "wide steps dear": wide_is_dear,
}


def run_for(curves: Curves, true: Curve, running: int, steps: int, *, depth: int = 50) -> None:
    """Decode for so many steps on a machine on which steps cost what `true` says."""
    for _ in range(steps):
        width = curves.next_width([depth] * running)
        assert 1 <= width <= running
        cells = depth * width
        curves.observe(width, width, true.seconds(width, width, cells), cells)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(sorted(POISONS)), st.floats(0.3, 20.0), st.floats(1e-4, 0.3), st.integers(2, 16))
def test_a_wrong_curve_comes_right_within_some_steps(poison: str, cores: float, first: float, running: int) -> None:
    true = machine(cores, first)
    curves = Curves(2, POISONS[poison](true), widest=16)
    run_for(curves, true, running, STEPS)
    width = favoured_width(curves.now, [50] * running)
    rates = [wide / true.seconds(wide, wide, 50 * wide) for wide in range(1, running + 1)]
    assert rates[width - 1] >= 0.85 * max(rates)
    assert curves.now.seconds(width, width, 50 * width) == pytest.approx(
        true.seconds(width, width, 50 * width), rel=0.3
    )


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(sorted(POISONS)), st.floats(0.3, 20.0), st.integers(1, 12))
def test_a_wrong_curve_comes_right_for_drafts_that_are_tried(poison: str, cores: float, drafts: int) -> None:
    true = machine(cores, 0.01)
    curves = Curves(2, POISONS[poison](true), widest=16)
    for step in range(STEPS):
        tokens = 1 + drafts if step % 2 else 1
        curves.observe(tokens, 1, true.seconds(tokens, 1, 50 * tokens), 50 * tokens)
    for tokens in (1, 1 + drafts):
        assert curves.now.seconds(tokens, 1) == pytest.approx(true.seconds(tokens, 1), rel=0.3)


def test_a_curve_that_is_only_assumed_is_made_right_and_counts_as_unmeasured() -> None:
    true = machine(4.0, 0.02)
    curves = Curves(2, Curve.assumed(0.5, most=16), widest=16, trusted=False)
    assert not curves.measured
    run_for(curves, true, 16, STEPS)
    assert curves.now.seconds(16, 16) == pytest.approx(true.seconds(16, 16), rel=0.15)
    assert not curves.measured
    curves.adopt(2, true)
    assert (curves.now, curves.measured) == (true, True)


def test_a_machine_that_gets_slower_for_good_is_followed_and_its_curve_is_measured_again() -> None:
    true = machine(4.0, 0.02)
    curves = Curves(2, true, widest=16)
    run_for(curves, scaled(true, 3.0), 16, STEPS)
    assert not curves.measured
    assert curves.now.seconds(16, 16) == pytest.approx(3 * true.seconds(16, 16), rel=0.1)


def test_a_few_stalled_steps_change_little() -> None:
    true = machine(4.0, 0.02)
    curves = Curves(2, true, widest=16)
    run_for(curves, true, 16, 10)
    run_for(curves, scaled(true, 50.0), 16, 3)
    assert curves.measured
    assert curves.now.seconds(16, 16) < 1.5 * true.seconds(16, 16)


def test_steps_beside_other_work_teach_nothing_unless_that_never_ends() -> None:
    true = machine(4.0, 0.02)
    curves = Curves(2, true, widest=16)
    for _ in range(50):
        curves.observe(16, 16, 100 * true.seconds(16, 16), 0, disturbed=True)
    assert curves.now == true
    for _ in range(20 * LEARNED_EVERY):
        curves.observe(16, 16, 2.5 * true.seconds(16, 16), 0, disturbed=True)
    assert curves.now.seconds(16, 16) == pytest.approx(2.5 * true.seconds(16, 16), rel=0.1)


@pytest.mark.parametrize(
    ("curve", "why"),
    [
        (only_one(CURVE), "only steps of one token"),
        (falling(CURVE), "of the time of a smaller one"),
        (Curve(Points((1, 2), (1.0, 900.0)), Points((1,), (1.0,)), 0.2, 0.0), "900.0 times as long"),
        (Curve(Points((1, 2), (1.0, 1.5)), Points((1,), (1.0,)), 50.0, 0.0), "a prompt token takes 50.0 s"),
    ],
)
def test_an_impossible_curve_is_told(curve: Curve, why: str) -> None:
    assert why in str(curve.implausible(most=4))
    assert CURVE.implausible(most=4) is None
    assert only_one(CURVE).implausible(most=1) is None, "an engine with one slot has no others"


@given(st.floats(1e-6, 100.0), st.integers(1, 128))
def test_what_is_assumed_is_possible_and_favours_width(seconds: float, most: int) -> None:
    assumed = Curve.assumed(seconds, most=most)
    assert assumed.implausible(most=most) is None
    assert math.isclose(assumed.seconds(1, 1), seconds)
    running = min(most, 64)
    assert favoured_width(assumed, [0] * running) == running
