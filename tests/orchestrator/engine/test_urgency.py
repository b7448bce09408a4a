import heapq
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engine.batching import CHUNK, Prefill, chunks_of
from orchestrator.engine.curve import turn
from orchestrator.engine.urgency import PATIENCE, Holder, gives_way, rank

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


@settings(max_examples=40, deadline=None)
@given(
    urgent=st.integers(1, 3),
    long=st.integers(1, 40),
    slots=st.integers(1, 6),
    width=st.integers(1, 6),
    second=st.sampled_from([0.5, 2.0]),
)
def test_a_stream_of_urgent_requests_starves_nobody(
    urgent: int, long: int, slots: int, width: int, second: float
) -> None:
    """More urgent requests come at every step than are ever done. The one with all the time in the world is done all
    the same: it is admitted, its prompt gets chunks and it gets its turns, before those that came long after it."""
    answer, prompt = 3, long * 40
    patient = [rank(0.0, math.inf), 0, prompt, answer, 0]  # rank, number, prompt and answer to come, steps left out
    queue, live = [patient], []
    now, behind = 0.0, 0
    while patient[2] or patient[3]:
        now += second
        for number in range(urgent):
            heapq.heappush(queue, [rank(now, -math.inf), 1 + number + urgent * int(now / second), 100, answer, 0])
        while queue and len(live) < slots:
            live.append(heapq.heappop(queue))
        live.sort()
        prefilling, running = [one for one in live if one[2]], [one for one in live if not one[2]]
        decode = [running[index] for index in turn(min(width, len(running)), [one[4] for one in running])]
        for one in running:
            one[4] = 0 if one in decode else one[4] + 1
        for one in decode:
            one[3] -= 1
        needs = [Prefill(0, one[2]) for one in prefilling]
        for index, count in chunks_of(needs, decoding=len(decode), batch=CHUNK + len(decode)):
            prefilling[index][2] -= count
        live = [one for one in live if one[2] or one[3]]
        behind += now > 2 * PATIENCE
        assert behind < 50 + urgent * 2 * PATIENCE / second * (answer + 2)


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
