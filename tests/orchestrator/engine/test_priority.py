import math
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.contract import EngineSpec, Generation, Message
from orchestrator.engine.llama import Llama
from orchestrator.engine.worker.priority import PATIENCE, CacheHolder, priority, select_preemption_victim
from tests.orchestrator.engine.driven_loop import Parent, driven_loop

times = st.floats(0, 1e6)
slacks = st.floats(-1e6, 1e6) | st.sampled_from([math.inf, -math.inf, 0.0])


@given(times, slacks, slacks)
def test_of_requests_that_arrive_together_the_one_with_less_slack_goes_first(
    arrived: float, one: float, other: float
) -> None:
    less, more = sorted((one, other))
    assert priority(arrived, arrived + less) <= priority(arrived, arrived + more)


@given(times, slacks, slacks, st.floats(0, 1e5))
def test_no_request_goes_before_one_that_arrived_long_before(
    arrived: float, one: float, other: float, later: float
) -> None:
    after = arrived + 2 * PATIENCE + later
    assert priority(arrived, arrived + one) <= priority(after, after + other)


def test_a_second_of_slack_around_zero_counts_as_a_second() -> None:
    assert abs(priority(100.0, 101.0) - 101.0) < 0.05
    assert priority(100.0, math.inf) == 100.0 + PATIENCE
    assert priority(100.0, -math.inf) == 100.0 - PATIENCE


def test_a_request_that_is_hurried_overtakes_those_that_wait(models: Path) -> None:
    """One slot: the requests are answered one after the other, and the last of three that come together is hurried."""
    grammar = 'root ::= "a" root'
    request = Generation(messages=(Message("user", "go"),), max_tokens=8, grammar=grammar)
    numbers: list[int] = []

    def hurry_last(parent: Parent) -> None:
        if not numbers:
            numbers.extend(parent.submit(request) for _ in range(3))
            parent.hurry(numbers[-1])
            parent.hurry(99)  # there is no such request

    spec = EngineSpec(file=str(models / "quantised.gguf"), context=256, slots=1, threads=1)
    with driven_loop(Llama(spec), spec, hurry_last) as parent:
        parent.submit(request)
        order = [parent.finished().seq for _ in range(4)]
    assert [number for number in order if number in numbers] == [numbers[2], numbers[0], numbers[1]]


holders = st.lists(st.builds(CacheHolder, st.floats(-1e3, 1e3), st.integers(0, 50)), min_size=2, max_size=8)


@given(holders)
def test_the_victim_is_the_last_that_frees_cells_and_never_the_first(held: list[CacheHolder]) -> None:
    victim = select_preemption_victim(held)
    assert victim != min(range(len(held)), key=lambda index: held[index].priority)
    others = [one for index, one in enumerate(held) if index != victim]
    rest = sorted(others, key=lambda one: one.priority)[1:]
    assert all(one.priority <= held[victim].priority for one in rest if one.frees or not held[victim].frees)
    assert held[victim].frees or not any(one.frees for one in rest)


@pytest.mark.parametrize("words", [1, 200])
def test_a_stream_of_requests_without_slack_starves_nobody(
    models: Path, monkeypatch: pytest.MonkeyPatch, words: int
) -> None:
    """Two requests without slack arrive before every step, more than the engine finishes. One with infinite slack ends
    all the same, after those that arrived while its patience lasted. A step takes two seconds of the test's clock.

    All of them are submitted by the loop's own thread, so that it does not matter when the test's thread gets a core.
    """
    now, step_seconds, most = 1000.0, 2.0, 400
    monkeypatch.setattr(time, "monotonic", lambda: now)
    grammar = 'root ::= "a" root'
    urgent = Generation(messages=(Message("user", "now"),), max_tokens=3, slack=-math.inf, grammar=grammar)
    patient = Generation(messages=(Message("user", "a " * words),), max_tokens=3, slack=math.inf, grammar=grammar)
    numbers: list[int] = []

    def submit_more(parent: Parent) -> None:
        nonlocal now
        if not numbers:
            for _ in range(20):
                parent.submit(urgent)
            numbers.append(parent.submit(patient))
        now += step_seconds
        if now < 1000.0 + step_seconds * most:
            parent.submit(urgent)
            parent.submit(urgent)

    spec = EngineSpec(file=str(models / "quantised.gguf"), context=1024, slots=4, threads=1)
    with driven_loop(Llama(spec), spec, submit_more) as parent:
        parent.submit(urgent)
        order = [parent.finished().seq]
        while order[-1] not in numbers:
            order.append(parent.finished().seq)
        later = [parent.finished().seq for _ in range(50)]
    assert 10 < len(order) < 200, "some had a higher priority, but not all of those that came later"
    assert min(later) > numbers[0], "requests arrived faster than they were finished"
