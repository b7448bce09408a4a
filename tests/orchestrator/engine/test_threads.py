"""With how many threads an engine computes beside other processes, on simulated machines."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.worker.threads import LONGEST_PAUSE, ThreadTuner, candidates

EXPECTED = 0.008
"""How long a step takes with all threads on a quiet machine, in seconds."""

Machine = Callable[[int], tuple[float, bool]]
"""From a number of threads: how many times as long as expected a step takes, and whether it is disturbed."""


def quiet(granted: int) -> Machine:
    return lambda threads: (granted / threads, False)


def one_core_taken(granted: int) -> Machine:
    """Another process uses one core: a thread that needs that core too waits for it."""
    return lambda threads: (granted / threads, False) if threads < granted else (12.0, True)


def all_cores_shared(granted: int) -> Machine:
    """Another process runs on each core."""
    return lambda threads: (2.2 * granted / threads, True)


def run_for(tuner: ThreadTuner, machine: Machine, seconds: float, now: float = 0.0) -> tuple[float, float]:
    """Run the machine, and return the time at the end and the work that was done, in expected seconds."""
    end, work = now + seconds, 0.0
    while now < end:
        times, disturbed = machine(tuner.threads)
        now += times * EXPECTED
        work += EXPECTED
        tuner.observe(times * EXPECTED, EXPECTED, now, disturbed=disturbed)
        assert 1 <= tuner.threads <= tuner.granted
    return now, work


@given(st.integers(1, 96), st.floats(1.0, 30.0))
def test_all_cores_of_a_quiet_machine_are_used(granted: int, seconds: float) -> None:
    tuner = ThreadTuner(granted)
    _, work = run_for(tuner, quiet(granted), seconds)
    assert tuner.threads == granted
    assert work >= 0.99 * seconds


@given(st.integers(2, 64))
def test_a_core_that_another_process_uses_is_left_to_it(granted: int) -> None:
    tuner = ThreadTuner(granted)
    now, _ = run_for(tuner, one_core_taken(granted), 10.0)
    now, work = run_for(tuner, one_core_taken(granted), 30.0, now)
    assert work >= 0.85 * 30.0 * (granted - 1) / granted


@given(st.integers(2, 64))
def test_all_cores_are_used_again_when_they_are_free(granted: int) -> None:
    tuner = ThreadTuner(granted)
    now, _ = run_for(tuner, one_core_taken(granted), 20.0)
    now, _ = run_for(tuner, quiet(granted), LONGEST_PAUSE + 2.0, now)
    assert tuner.threads == granted
    _, work = run_for(tuner, quiet(granted), 10.0, now)
    assert work >= 0.99 * 10.0


@given(st.integers(2, 64))
def test_all_threads_stay_where_fewer_do_not_help(granted: int) -> None:
    tuner = ThreadTuner(granted)
    now, _ = run_for(tuner, all_cores_shared(granted), 10.0)
    _, work = run_for(tuner, all_cores_shared(granted), 30.0, now)
    assert work >= 0.9 * 30.0 / 2.2


def test_other_threads_that_are_granted_are_used_at_once() -> None:
    tuner = ThreadTuner(4)
    run_for(tuner, one_core_taken(4), 5.0)
    assert tuner.threads == 3
    tuner.grant(4)
    assert tuner.threads == 3, "nothing new was granted"
    tuner.grant(2)
    assert tuner.threads == 2
    tuner.grant(1)
    run_for(tuner, all_cores_shared(1), 5.0)
    assert tuner.threads == 1


def test_long_steps_are_judged_one_by_one() -> None:
    tuner = ThreadTuner(2)
    steps = 0
    now = 0.0
    while tuner.threads == 2:
        now += 1.0
        steps += 1
        tuner.observe(1.0, 0.2, now, disturbed=True)
    assert steps <= 3


@given(st.integers(1, 200), st.integers(1, 200))
def test_candidates_are_possible_and_hold_all_threads_and_the_present_ones(one: int, other: int) -> None:
    threads, granted = sorted((one, other))
    found = candidates(threads, granted)
    assert found == sorted(set(found), reverse=True)
    assert {threads, granted} <= set(found)
    assert all(1 <= number <= granted for number in found)
    assert len(found) <= 7
