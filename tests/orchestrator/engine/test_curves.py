"""What is known of a model with each number of threads."""

import pytest

from orchestrator.engine.curve import Curve, Points, favoured_width
from orchestrator.engine.curves import DRAFTED_LEARNED_EVERY, FIRST, LEARNED_EVERY, Curves

CURVE = Curve(Points((1, 2), (1.0, 1.5)), Points((1, 2), (1.0, 1.2)), prefill=0.2, per_cell=0.001)


def test_other_threads_begin_with_what_is_known_and_learn_for_themselves() -> None:
    curves = Curves(2, CURVE)
    curves.use(1)
    assert curves.now == CURVE
    curves.observe(1, 1, 2.0, 10)
    slower = curves.now
    assert slower.seconds(1, 1) > CURVE.seconds(1, 1)
    curves.use(2)
    assert curves.now == CURVE
    curves.use(1)
    assert curves.now == slower


def test_a_filled_step_tells_what_its_width_takes() -> None:
    filled, plain = Curves(2, CURVE), Curves(2, CURVE)
    filled.observe(1, 1, 3.0, 10, width=2)
    plain.observe(2, 2, 3.0, 20)
    assert filled.now == plain.now


def test_all_first_steps_are_learned_from_and_then_one_of_some() -> None:
    curves = Curves(2, CURVE)
    seen = [curves.now]
    steps = FIRST + 2 * LEARNED_EVERY
    for _ in range(steps):
        curves.observe(1, 1, 2.0, 0)
        seen.append(curves.now)
    changed = [index for index in range(steps) if seen[index + 1] is not seen[index]]
    assert changed == [*range(FIRST), *range(FIRST, steps, LEARNED_EVERY)]


def test_steps_with_drafts_are_counted_by_themselves() -> None:
    curves = Curves(2, CURVE)
    for _ in range(FIRST):
        curves.observe(1, 1, 1.0, 0)
        curves.observe(2, 1, 2.0, 0)
    learned = 0
    for _ in range(10 * DRAFTED_LEARNED_EVERY):
        before = curves.now
        curves.observe(2, 1, 3.0, 0)
        learned += curves.now is not before
        curves.observe(1, 1, 1.0, 0)
    assert learned == 10


def test_the_second_of_a_few_steps_without_drafts_tells_what_drafts_save() -> None:
    curves = Curves(2, CURVE)
    for _ in range(FIRST + 1):
        curves.observe(1, 1, 1.0, 0)
        curves.observe(2, 1, 2.0, 0)
    for _ in range(3):
        curves.observe(2, 1, 2.0, 0)
        before = curves.now
        curves.observe(1, 1, 5.0, 0)
        assert curves.now is before, "llama.cpp laid out another step than the one before"
        curves.observe(1, 1, 2.0, 0)
        assert curves.now.seconds(1, 1) > before.seconds(1, 1)


def test_steps_with_drafts_that_were_seen_at_a_bad_time_get_their_shape_back() -> None:
    curves = Curves(2, CURVE)
    for _ in range(FIRST):
        curves.observe(2, 1, 4.0, 0)
    assert curves.now.seconds(2, 1) > 3.5
    for _ in range(400 * LEARNED_EVERY):
        curves.observe(1, 1, 2.0, 0)
    assert curves.now.seconds(1, 1) == pytest.approx(2.0, rel=0.01)
    assert curves.now.seconds(2, 1) == pytest.approx(2.4, rel=0.05)


def test_steps_with_drafts_that_are_done_are_known_as_they_are() -> None:
    curves = Curves(2, CURVE)
    for _ in range(400 * LEARNED_EVERY):
        curves.observe(1, 1, 1.0, 0)
        curves.observe(2, 1, 2.0, 0)
    assert curves.now.seconds(2, 1) == pytest.approx(2.0, rel=0.1)


def test_the_favoured_width_is_found_anew_when_others_run_or_something_is_learned() -> None:
    dear = Curve(Points((1, 2), (1.0, 2.5)), Points((1, 2), (1.0, 1.2)), prefill=0.2, per_cell=0.0)
    curves = Curves(2, dear)
    assert [curves.favoured_width([9] * width) for width in (1, 2, 1, 0)] == [1, 1, 1, 0]
    while curves.now.seconds(2, 2) > 1.5 * curves.now.seconds(1, 1):
        curves.observe(2, 2, 1.2, 0)
        curves.observe(1, 1, 1.0, 0)
    assert curves.favoured_width([9, 9]) == favoured_width(curves.now, [9, 9]) == 2
