import pytest

from orchestrator.pool.errors import ModelBroken
from orchestrator.pool.seat import FAILURE_WINDOW, MAX_FAILURES, Seat


def _failed(registry_of, *times: float) -> Seat:
    seat = Seat(registry_of(a="warm").models["a"])
    for time in times:
        seat.failed(time, f"died at {time}")
    return seat


def test_fast_failures_make_a_model_broken_for_a_while(registry_of) -> None:
    seat = _failed(registry_of, *range(MAX_FAILURES))
    with pytest.raises(ModelBroken, match=rf"failed {MAX_FAILURES} times .* the last time: died at {MAX_FAILURES - 1}"):
        seat.check(10.0)
    assert seat.status(10.0).state == "broken"
    seat.check(FAILURE_WINDOW)
    assert seat.status(FAILURE_WINDOW).state == "unloaded"
    seat.failed(FAILURE_WINDOW, "again")
    assert seat.broken_for(FAILURE_WINDOW) == 1.0  # the oldest of the last three was one second in


def test_slow_failures_do_not(registry_of) -> None:
    seat = _failed(registry_of, 0.0, FAILURE_WINDOW, 2 * FAILURE_WINDOW)
    seat.check(2 * FAILURE_WINDOW)
    assert seat.status(2 * FAILURE_WINDOW).reason == f"died at {2 * FAILURE_WINDOW}"
