import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.routing.credit import StepCredit, plain, td_lambda

CHAIN = {
    "S1": StepCredit(reward=None, value=0.5, used_by=("S2",)),
    "S2": StepCredit(reward=None, value=0.7, used_by=("S3",)),
    "S3": StepCredit(reward=None, value=0.9),
}
shares = st.floats(0, 1)


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, StepCredit]:
    """Return steps of which each is used by some of the later ones."""
    names = [f"S{number}" for number in range(1, draw(st.integers(1, 8)) + 1)]
    steps = {}
    for place, name in enumerate(names):
        later = names[place + 1 :]
        used = draw(st.lists(st.sampled_from(later), unique=True)) if later else []
        steps[name] = StepCredit(reward=draw(st.none() | shares), value=draw(shares), used_by=tuple(used))
    return steps


def test_plain_credit_is_the_own_reward_or_the_runs() -> None:
    steps = {**CHAIN, "S2": StepCredit(reward=0.25, value=0.7, used_by=("S3",))}
    assert plain(steps, 1.0) == {"S1": 1.0, "S2": 0.25, "S3": 1.0}


def test_the_trace_goes_from_the_next_value_to_the_whole_run() -> None:
    assert td_lambda(CHAIN, 0.0, trace=0.0) == pytest.approx({"S1": 0.7, "S2": 0.9, "S3": 0.0})
    assert td_lambda(CHAIN, 1.0, trace=1.0) == pytest.approx({"S1": 1.0, "S2": 1.0, "S3": 1.0})
    half = td_lambda(CHAIN, 0.0, trace=0.5)
    assert half == pytest.approx({"S1": 0.5 * 0.7 + 0.5 * 0.45, "S2": 0.45, "S3": 0.0})


def test_a_step_shares_what_came_of_all_that_used_it() -> None:
    steps = {
        "S1": StepCredit(reward=None, value=0.5, used_by=("S2", "S3")),
        "S2": StepCredit(reward=1.0, value=0.5),
        "S3": StepCredit(reward=0.0, value=0.5),
    }
    assert td_lambda(steps, 1.0, trace=1.0, own=1.0)["S1"] == pytest.approx(0.5)


@given(graphs(), shares, shares, shares)
def test_returns_stay_among_rewards_and_values(
    steps: dict[str, StepCredit], end: float, trace: float, own: float
) -> None:
    returns = td_lambda(steps, end, trace=trace, own=own)
    assert list(returns) == list(steps)
    assert all(-1e-9 <= number <= 1 + 1e-9 for number in returns.values())


@given(graphs(), shares)
def test_with_own_rewards_only_td_is_plain_credit_where_there_are_any(steps: dict[str, StepCredit], end: float) -> None:
    returns = td_lambda(steps, end, own=1.0)
    assert all(returns[name] == step.reward for name, step in steps.items() if step.reward is not None)


def test_what_is_no_graph_is_refused() -> None:
    with pytest.raises(ValueError, match="used by S9"):
        td_lambda({"S1": StepCredit(reward=None, value=0.5, used_by=("S9",))}, 1.0)
    circle = {
        "S1": StepCredit(reward=None, value=0.5, used_by=("S2",)),
        "S2": StepCredit(reward=None, value=0.5, used_by=("S1",)),
    }
    with pytest.raises(ValueError, match="circle"):
        td_lambda(circle, 1.0)
