"""Only a candidate that is better with certainty is promoted."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bench.paired import mean_interval
from orchestrator.memrl.parl.compare import Comparison, PolicyFigures

FIGURES = PolicyFigures(performance=0.5, success=0.5, collapse=0.0, spurious=0.0, longer=0.0, width=2.0)
COMPARISON = Comparison(requests=9, gain=0.1, low=0.01, high=0.2, current=FIGURES, candidate=FIGURES)
gains = st.lists(st.floats(-1, 1), min_size=6, max_size=30)


@given(gains)
def test_an_interval_has_the_mean_in_its_middle(values: list[float]) -> None:
    low, high = mean_interval(values)
    assert low <= high
    assert abs((low + high) / 2 - sum(values) / len(values)) < 1e-9


def test_three_gains_in_six_requests_are_not_certain() -> None:
    low, _ = mean_interval([0.3, 0.3, 0.3, 0.0, 0.0, 0.0])
    assert low < 0
    assert mean_interval([0.3, 0.3, 0.3, 0.0, 0.0, 0.0] * 10)[0] > 0


@given(st.floats(-1, 1))
def test_equal_gains_leave_no_doubt(gain: float) -> None:
    low, high = mean_interval([gain] * 8)
    assert abs(low - gain) < 1e-9
    assert abs(high - gain) < 1e-9


def test_no_difference_is_not_better() -> None:
    assert COMPARISON.better
    assert not replace(COMPARISON, low=0.0).better
    assert mean_interval([0.0] * 60) == (0.0, 0.0)
