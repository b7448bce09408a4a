"""How much one caller's outcomes count, and how much they do for readiness."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.memrl.reward import (
    FORM_WEIGHT,
    FULL_BY_ACTION,
    FULL_BY_CALLER,
    IN_PROCESS_WEIGHT,
    READY_BY_CALLER,
    TESTED_WEIGHT,
    UNCHECKED_WEIGHT,
    Contribution,
    propensity_weight,
    readiness,
    share,
    success_weight,
)

SUMS = st.floats(0, 1e6)
CHANCES = st.floats(0, 1)


@given(SUMS, SUMS, SUMS)
def test_the_share_falls_with_what_was_told(by_action: float, by_caller: float, more: float) -> None:
    now = share(by_action, by_caller)
    assert 0 < now <= 1
    assert share(by_action + more, by_caller) <= now
    assert share(by_action, by_caller + more) <= now


def test_the_sum_of_shares_grows_with_the_logarithm() -> None:
    for full, shares in (
        (FULL_BY_ACTION, [share(number, 0) for number in range(2000)]),
        (FULL_BY_CALLER, [share(0, number) for number in range(2000)]),
    ):
        assert sum(shares) == pytest.approx(full * (1 + math.log(2000 / full)), rel=0.1)


@given(st.lists(st.integers(0, 10_000), max_size=20))
def test_others_count_up_to_a_limit_for_readiness(counts: list[int]) -> None:
    told = [
        Contribution(caller=f"token:{place}", outcomes=count, drawn=count, told=count, counted=count)
        for place, count in enumerate(counts)
    ]
    assert readiness(told, ()) <= READY_BY_CALLER * len(counts)
    assert readiness(told, {one.caller for one in told}) == sum(counts)


@given(CHANCES, CHANCES)
def test_a_forced_choice_counts_by_how_probable_it_would_have_been(propensity: float, unforced: float) -> None:
    weight = propensity_weight(propensity, unforced)
    assert 0 <= weight <= 1
    assert weight == pytest.approx(min(1.0, unforced / max(propensity, 1e-9))), (
        "what was next to impossible teaches nothing"
    )
    assert propensity_weight(propensity, None) == 1.0
    assert propensity_weight(propensity, 0.0) == 0.0


def test_tests_in_one_process_with_the_code_count_less_unless_a_judge_agrees() -> None:
    assert success_weight(()) == UNCHECKED_WEIGHT
    assert success_weight(("lint", "judge")) == FORM_WEIGHT
    assert success_weight(("lint", "unit")) == success_weight(("integration",)) == IN_PROCESS_WEIGHT < 1
    assert success_weight(("unit", "judge")) == TESTED_WEIGHT > IN_PROCESS_WEIGHT
