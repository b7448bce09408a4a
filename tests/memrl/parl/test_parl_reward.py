"""The reward of a plan: what each part pays for, and what nobody can gain by."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.memrl.parl.reward import (
    MeasuredPlan,
    RewardSettings,
    advantages,
    is_collapsed,
    performance,
    reward,
    spurious_share,
    stage_over,
)

PLAN = MeasuredPlan(score=1.0, seconds=10.0, serial_seconds=30.0, critical_steps=2, width=3, steps=4, used=4)
shares = st.floats(0, 1)
times = st.floats(0.01, 1e4)
plans = st.builds(
    lambda score, seconds, serial, width, steps, unused: MeasuredPlan(
        score=score,
        seconds=seconds,
        serial_seconds=serial,
        critical_steps=1,
        width=width,
        steps=steps,
        used=max(0, steps - unused),
    ),
    shares,
    times,
    times,
    st.integers(1, 16),
    st.integers(1, 40),
    st.integers(0, 40),
)


def test_the_parts_are_paid_as_the_formula_says() -> None:
    parts = reward(replace(PLAN, used=2), PLAN, 0, RewardSettings())
    assert (parts.parallel, parts.finish, parts.performance) == pytest.approx((20 / 30, 0.5, 1.0))
    assert parts.total == pytest.approx(0.1 * (20 / 30 + 0.5 * 0.5) + 1.0)


@given(plans, plans, st.integers(0, 1000))
def test_a_reward_is_bounded_and_its_shaping_ends(result: MeasuredPlan, best: MeasuredPlan, updates: int) -> None:
    parts = reward(result, best, updates, RewardSettings())
    assert 0 <= parts.total <= 1.15
    if updates >= RewardSettings().stage.outcomes:
        assert parts.total == parts.performance


@given(plans, times)
def test_a_longer_critical_path_never_pays(result: MeasuredPlan, seconds: float) -> None:
    slower = replace(result, seconds=result.seconds + seconds)
    assert performance(slower, PLAN, RewardSettings()) <= performance(result, PLAN, RewardSettings())


@given(st.integers(2, 100_000))
def test_the_shaping_ends_within_each_training(updates: int) -> None:
    stage = stage_over(updates)
    assert stage.at(0) == 0.1
    assert stage.at(updates - 1) == 0


def test_arms_leave_parts_out() -> None:
    assert reward(PLAN, PLAN, 0, RewardSettings(parallel=False)).parallel == 0
    assert reward(PLAN, PLAN, 10_000, RewardSettings(annealed=False)).stage == 0.1
    assert performance(replace(PLAN, seconds=99.0), PLAN, RewardSettings(price=0.0)) == 1.0


def test_time_is_priced_in_seconds_or_in_critical_steps() -> None:
    slower, deeper = replace(PLAN, seconds=15.0), replace(PLAN, critical_steps=3)
    seconds, steps = RewardSettings(cost="seconds"), RewardSettings(cost="steps")
    assert performance(slower, PLAN, seconds) == performance(deeper, PLAN, steps) == pytest.approx(0.75)
    assert performance(deeper, PLAN, seconds) == performance(slower, PLAN, steps) == 1.0


def test_a_plan_collapses_below_half_of_the_feasible_width() -> None:
    assert is_collapsed(replace(PLAN, width=1), 4)
    assert not is_collapsed(replace(PLAN, width=2), 4)
    assert not is_collapsed(replace(PLAN, width=1), 1)


def test_steps_that_are_not_used_or_beyond_the_best_plan_are_spurious() -> None:
    assert spurious_share(PLAN, PLAN) == 0
    assert spurious_share(replace(PLAN, used=3), PLAN) == 0.25
    assert spurious_share(replace(PLAN, steps=8, used=8), PLAN) == 0.5


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=8))
def test_advantages_are_about_the_mean_of_their_group(rewards: list[float]) -> None:
    found = advantages(rewards)
    assert sum(found) == pytest.approx(0, abs=1e-6)
    if len(set(rewards)) == 1:
        assert found == [0.0] * len(rewards)
