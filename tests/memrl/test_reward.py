import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.memrl.reward import Cost, Prices, Stage, judge_weight, net, staged, teaches
from tests.memrl.situations import outcome

shares = st.floats(0, 1)
seconds = st.floats(0, 1e4)


@pytest.mark.parametrize("failure", ["INFRASTRUCTURE", "RESOURCE"])
def test_a_failure_of_the_machine_teaches_nothing(failure: str) -> None:
    broken = outcome(0.0, failure=failure)
    assert not teaches(broken)
    with pytest.raises(ValueError, match=failure):
        staged(broken, 0)


def test_what_nobody_judged_teaches_nothing() -> None:
    assert not teaches(outcome(None))
    assert not teaches(outcome(1.0, weight=0.0))
    assert teaches(outcome(0.0, failure="TIMEOUT"))


@given(success=shares, quality=shares, seen=st.integers(0, 3000), saved=seconds, took=seconds, used=st.booleans())
def test_the_reward_is_the_formula(
    success: float, quality: float, seen: int, saved: float, took: float, used: bool
) -> None:
    told = outcome(success, quality=quality, saved_seconds=saved, critical_seconds=took, used=used)
    reward = staged(told, seen)
    s = 0.1 * max(0.0, 1 - seen / 1000)
    parallel = saved / (saved + took) if saved > 0 else 0.0
    assert reward.total == pytest.approx(s * (parallel + 0.5 * success * used) + (1 - s) * success * quality)
    assert 0 <= reward.total <= 1.05
    assert net(reward) <= reward.total


def test_after_the_last_stage_only_success_counts() -> None:
    assert Stage().at(0) == 0.1
    assert Stage().at(1000) == Stage().at(5000) == 0
    assert staged(outcome(1.0, saved_seconds=5.0), 1000).total == 1
    assert staged(outcome(0.0, saved_seconds=5.0), 1000).total == 0


def test_parallelism_that_shortened_nothing_brings_nothing() -> None:
    assert staged(outcome(1.0, saved_seconds=0.0), 0).parts["parallel"] == 0
    assert staged(outcome(1.0, saved_seconds=-3.0), 0).parts["parallel"] == 0
    assert staged(outcome(1.0, saved_seconds=3.0, critical_seconds=1.0), 0).parts["parallel"] == 0.75


def test_a_finished_step_that_nobody_used_brings_nothing_for_finishing() -> None:
    assert staged(outcome(1.0, used=False), 0).parts["finish"] == 0
    assert staged(outcome(1.0, used=False), 0).total < staged(outcome(1.0), 0).total


def test_a_success_has_to_be_a_share() -> None:
    with pytest.raises(ValueError, match="accepted: 0 to 1"):
        staged(outcome(1.5), 0)
    with pytest.raises(ValueError, match=r"quality of an outcome is -0.5; accepted: 0 to 1"):
        staged(outcome(1.0, quality=-0.5), 0)


@given(seconds, seconds, seconds, seconds)
def test_each_part_of_a_cost_raises_its_price(critical: float, load: float, tokens: float, lost: float) -> None:
    prices = Prices()
    cost = Cost(seconds=critical, tokens=tokens, load_seconds=load, lost_prefix_tokens=lost)
    alone = (
        Cost(seconds=critical),
        Cost(load_seconds=load),
        Cost(tokens=tokens),
        Cost(lost_prefix_tokens=lost),
    )
    assert prices.of(cost) == pytest.approx(sum(map(prices.of, alone)))
    assert all(prices.of(one) >= 0 for one in alone)


def test_a_judge_counts_by_how_often_it_agrees() -> None:
    assert judge_weight(50, 100) == pytest.approx(0, abs=0.02)
    assert judge_weight(10, 100) == 0
    assert judge_weight(0, 0) < judge_weight(9, 10) < judge_weight(99, 100) < 1
