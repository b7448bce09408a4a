import math
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.contract import EngineSpec, Generation
from orchestrator.engine.llama import Llama
from orchestrator.engine.worker.priority import PATIENCE, Holder, gives_way, rank
from tests.orchestrator.engine.driven_loop import Parent, driven_loop

times = st.floats(0, 1e6)
slacks = st.floats(-1e6, 1e6) | st.sampled_from([math.inf, -math.inf, 0.0])


@given(times, slacks, slacks)
def test_of_those_that_come_together_who_has_less_slack_goes_first(arrived: float, one: float, other: float) -> None:
    less, more = sorted((one, other))
    assert rank(arrived, arrived + less) <= rank(arrived, arrived + more)


@given(times, slacks, slacks, st.floats(0, 1e5))
def test_nobody_goes_before_one_who_came_long_before(arrived: float, one: float, other: float, later: float) -> None:
    after = arrived + 2 * PATIENCE + later
    assert rank(arrived, arrived + one) <= rank(after, after + other)


def test_a_little_slack_is_taken_at_its_word() -> None:
    assert abs(rank(100.0, 101.0) - 101.0) < 0.05
    assert rank(100.0, math.inf) == 100.0 + PATIENCE
    assert rank(100.0, -math.inf) == 100.0 - PATIENCE


holders = st.lists(st.builds(Holder, st.floats(-1e3, 1e3), st.integers(0, 50)), min_size=2, max_size=8)


@given(holders)
def test_who_gives_way_has_the_most_slack_and_frees_cells_and_the_most_urgent_stays(held: list[Holder]) -> None:
    loser = gives_way(held)
    assert loser != min(range(len(held)), key=lambda index: held[index].rank)
    others = [one for index, one in enumerate(held) if index != loser]
    rest = sorted(others, key=lambda one: one.rank)[1:]
    assert all(one.rank <= held[loser].rank for one in rest if one.frees or not held[loser].frees)
    assert held[loser].frees or not any(one.frees for one in rest)


@given(holders, st.integers(1, 200))
def test_cells_run_out_and_still_one_stays_to_the_end(held: list[Holder], wanted: int) -> None:
    """However often somebody gives way, the most urgent of all is never the one."""
    first = min(held, key=lambda one: one.rank)
    left, freed = list(held), 0
    while freed < wanted and len(left) > 1:
        freed += left.pop(gives_way(left)).frees
    assert any(one is first for one in left)


@pytest.mark.parametrize("words", [1, 200])
def test_a_stream_of_urgent_requests_starves_nobody(models: Path, monkeypatch: pytest.MonkeyPatch, words: int) -> None:
    """More urgent requests come before every step than are ever done, and one with all the time in the world ends all
    the same: after those that came until its patience was over. A step takes `second` seconds of the test's clock."""
    now, second, steps, most = 1000.0, 2.0, 0, 400
    monkeypatch.setattr(time, "monotonic", lambda: now)
    grammar = 'root ::= "a" root'
    urgent = Generation(messages=(("user", "now"),), max_tokens=3, slack=-math.inf, grammar=grammar)

    def come(parent: Parent) -> None:
        nonlocal now, steps
        now += second
        steps += 1
        if steps < most:
            parent.submit(urgent)
            parent.submit(urgent)

    spec = EngineSpec(file=str(models / "quantised.gguf"), context=1024, slots=4, threads=1)
    with driven_loop(Llama(spec), spec, come) as parent:
        for _ in range(20):
            parent.submit(urgent)
        patient = parent.submit(
            Generation(messages=(("user", "a " * words),), max_tokens=3, slack=math.inf, grammar=grammar)
        )
        behind = 0
        while parent.finished().seq != patient:
            behind += 1
        ended = steps
        waiting = parent.stats().stats.queued
    assert behind > 10, "they were more urgent"
    assert ended < 200 < most
    assert waiting > 50, "they came faster than they were done"
