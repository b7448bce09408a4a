"""Predicting the time of a step, correcting the prediction, and choosing which sequences decode."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engine.step_cost.model import (
    MAX_PADDING,
    MIN_BATCHING_GAIN,
    NOISE,
    SIZES,
    Points,
    StepCostModel,
    attended_cells,
    best_decode_width,
    divide_step,
    round_robin,
    wasteful_widths,
)

times = st.floats(1e-4, 10.0)
POWERS = (1, 2, 4, 8, 16, 32, 64)


@st.composite
def cost_models(draw: st.DrawFn) -> StepCostModel:
    """Cost models with any noise at all."""
    count = draw(st.integers(1, len(SIZES)))
    first = draw(times)
    decode = Points(SIZES[:count], (first, *draw(st.lists(times, min_size=count - 1, max_size=count - 1))))
    others = len(SIZES) - 1
    verify = Points(SIZES, (first, *draw(st.lists(times, min_size=others, max_size=others))))
    return StepCostModel(decode, verify, draw(times), draw(st.floats(0, 1e-3)), draw(st.booleans()))


def cost_model(*decode: float, prefill: float = 1.0, per_cell: float = 0.0, pads: bool = False) -> StepCostModel:
    points = Points(POWERS[: len(decode)], decode)
    return StepCostModel(points, points, prefill, per_cell, pads)


def test_measured_points_are_returned_and_joined_by_lines() -> None:
    decode, verify = Points((1, 2, 4), (1.0, 3.0, 4.0)), Points((1, 2, 8), (1.0, 2.0, 5.0))
    measured = StepCostModel(decode, verify, prefill=0.25, per_cell=0.001)
    assert [measured.seconds(n, n) for n in (1, 2, 3, 4, 6)] == [1.0, 3.0, 3.5, 4.0, 4.5]
    assert [measured.seconds(n, 1) for n in (1, 2, 4, 8, 12)] == [1.0, 2.0, 3.0, 5.0, 6.0]
    assert measured.seconds(8, 2) == 5.0 + (3.0 - 2.0)
    assert measured.seconds(2, 2, cells=500) == 3.5


@given(cost_models(), st.integers(1, 200), st.integers(0, 100), st.integers(0, 10_000))
def test_every_step_takes_time(costs: StepCostModel, sequences: int, more: int, cells: int) -> None:
    assert 0 < costs.seconds(sequences + more, sequences) <= costs.seconds(sequences + more, sequences, cells)


@given(cost_models(), st.integers(1, 80), st.integers(0, 10_000))
def test_a_step_is_filled_where_a_wider_one_takes_less(costs: StepCostModel, sequences: int, cells: int) -> None:
    width = costs.padded_width(sequences, cells)
    bare = replace(costs, pads=False)
    most = min(sequences + MAX_PADDING, costs.decode.sizes[-1]) if costs.pads else sequences
    choices = {wide: bare.seconds(wide, wide, 0) for wide in range(sequences, max(most, sequences) + 1)}
    seconds = {wide: time + costs.per_cell * cells * wide / sequences for wide, time in choices.items()}
    assert seconds[width] == pytest.approx(costs.seconds(sequences, sequences, cells))
    if width > sequences:
        assert seconds[width] < seconds[sequences] * (1 - NOISE) * (1 + 1e-9)
        assert seconds[width] == min(seconds.values())
    else:
        assert min(seconds.values()) >= seconds[sequences] * (1 - NOISE) * (1 - 1e-9)


def test_tiles_are_filled_unless_the_cells_are_many() -> None:
    points = Points((1, 2, 3, 4), (10.0, 15.0, 20.0, 16.0))
    tiles = StepCostModel(points, points, 5.0, 0.01, pads=True)
    assert [tiles.padded_width(width) for width in (1, 2, 3, 4, 5)] == [1, 2, 4, 4, 5]
    assert tiles.seconds(3, 3) == 16.0
    assert tiles.padded_width(3, cells=3 * 300) == 4
    assert tiles.padded_width(3, cells=3 * 500) == 3, "a filler would attend to 500 cells, which takes longer"
    assert replace(tiles, pads=False).padded_width(3) == 3


@given(cost_models(), st.integers(1, 8), st.integers(0, 100))
def test_no_token_costs_less_than_the_least_growth(costs: StepCostModel, sequences: int, more: int) -> None:
    here = costs.seconds(sequences + more + 1, sequences)
    further = costs.seconds(sequences + more + 2, sequences)
    assert further - here >= costs.least_growth - 1e-9 * further


@settings(deadline=None)
@given(
    cost_models(),
    st.lists(st.tuples(st.integers(1, 600), st.integers(1, 64), times, st.integers(0, 10**6)), min_size=1, max_size=30),
)
def test_any_observation_leaves_a_sound_cost_model(
    costs: StepCostModel, steps: list[tuple[int, int, float, int]]
) -> None:
    for tokens, sequences, seconds, cells in steps:
        costs = costs.observed(max(tokens, sequences), sequences, seconds, cells)
    assert 0 < min(costs.seconds(1, 1), costs.seconds(700, 64)) < float("inf")


def test_observations_draw_the_cost_model_to_what_the_machine_does() -> None:
    true = cost_model(1.0, 1.5, 2.0, 3.0, 5.0, 9.0, 17.0, prefill=0.3, per_cell=0.0002)
    learned = cost_model(2.0, 2.0, 5.0, 5.0, 9.0, 11.0, 14.0, prefill=0.1, per_cell=0.001)
    steps = [(n, s, n * depth) for n in (1, 2, 3, 5, 8, 20, 64, 128) for s in {1, n} for depth in (0, 400, 4000)]
    for _ in range(300):
        for tokens, sequences, cells in steps:
            learned = learned.observed(tokens, sequences, true.seconds(tokens, sequences, cells), cells)
    for tokens, sequences, cells in steps:
        assert learned.seconds(tokens, sequences, cells) == pytest.approx(
            true.seconds(tokens, sequences, cells), rel=0.03
        )
    assert learned.per_cell == pytest.approx(true.per_cell, rel=0.05)


def test_what_is_seen_with_drafts_counts_for_all_steps_and_without_only_for_those_without() -> None:
    learned = cost_model(1.0, 1.5, 2.0).observed(4, 1, 3.0)
    assert learned.seconds(4, 1) == pytest.approx(2.1)
    assert 2.05 < learned.seconds(4, 4) < 2.1
    learned = cost_model(1.0, 1.5, 2.0).observed(4, 4, 3.0)
    assert learned.seconds(4, 4) == pytest.approx(2.1)
    assert learned.seconds(4, 1) == 2.0


def test_kinds_that_are_slower_in_different_ways_are_distinguished() -> None:
    learned = cost_model(1.0, 1.5, 2.0)
    for _ in range(300):
        learned = learned.observed(4, 1, 5.0).observed(4, 4, 3.0).observed(1, 1, 1.5)
    assert learned.seconds(4, 1) == pytest.approx(5.0, rel=0.05)
    assert learned.seconds(4, 4) == pytest.approx(3.0, rel=0.05)


def test_a_slower_machine_makes_drafts_look_no_better_although_only_drafts_are_made() -> None:
    learned = cost_model(1.0, 1.5, 2.0)
    for _ in range(200):
        learned = learned.observed(4, 1, 4.0)
    assert learned.seconds(4, 1) / learned.seconds(1, 1) == pytest.approx(2.0, rel=0.2)


def test_one_stalled_step_does_not_spoil_the_cost_model() -> None:
    before = cost_model(1.0, 1.5, 2.0)
    after = before.observed(1, 1, 1000.0)
    assert after == before.observed(1, 1, 2.0), "it counts as one that took twice as long"
    for size in (1, 2, 4):
        assert after.seconds(size, size) <= 1.1 * before.seconds(size, size) * (1 + 1e-9), (
            "of which a tenth is believed"
        )


def test_a_slower_machine_does_not_look_like_a_worse_width() -> None:
    learned = cost_model(1.0, 1.6, 2.6, 4.4, 8.0)
    for _ in range(200):
        learned = learned.observed(16, 16, 12.0)
    assert learned.seconds(16, 16) == pytest.approx(12.0, rel=0.02)
    assert best_decode_width(learned, [0] * 16) == 16


def test_depth_is_learned_although_none_was_measured() -> None:
    learned = cost_model(1.0, 2.0)
    for _ in range(2000):
        learned = learned.observed(1, 1, 1.0, 0).observed(1, 1, 3.0, 8000)
    assert learned.seconds(1, 1, 4000) == pytest.approx(2.0, rel=0.05)


def test_a_learned_cost_model_keeps_the_single_token_the_same_in_both_sets() -> None:
    learned = cost_model(1.0, 2.0).observed(1, 1, 2.0)
    assert learned.decode.seconds[0] == learned.verify.seconds[0] == learned.seconds(1, 1) == pytest.approx(1.1)


@pytest.mark.parametrize(
    ("sizes", "seconds"),
    [((), ()), ((2, 4), (1.0, 2.0)), ((1, 1), (1.0, 2.0)), ((1, 2), (1.0,)), ((1,), (0.0,)), ((1,), (float("nan"),))],
)
def test_impossible_points_are_refused(sizes: tuple[int, ...], seconds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="accepted"):
        Points(sizes, seconds)


@given(st.integers(0, 50), st.integers(1, 20))
def test_every_token_attends_to_itself_and_all_before_it(position: int, count: int) -> None:
    assert attended_cells(position, count) == sum(p + 1 for p in range(position, position + count))


@given(cost_models(), st.lists(st.integers(0, 5000), max_size=40))
def test_the_favoured_width_is_the_widest_that_is_not_slower_than_one_by_one_nor_much_slower_than_the_best(
    costs: StepCostModel, depths: list[int]
) -> None:
    width = best_decode_width(costs, depths)
    rates = [w / costs.seconds(w, w, sum(depths[:w])) for w in range(1, len(depths) + 1)]
    if not depths:
        assert width == 0
        return
    enough = max(max(rates) * (1 - MIN_BATCHING_GAIN), rates[0] * (1 - NOISE))
    assert rates[width - 1] >= enough
    assert all(rate < enough for rate in rates[width:])


def test_a_step_is_short_for_sure_only_if_even_a_bad_cost_model_says_so() -> None:
    fast, slow = cost_model(0.001, 0.003, per_cell=1e-6), cost_model(0.1, 0.3, per_cell=1e-6)
    assert fast.is_short(64, 1000)
    assert not fast.is_short(64, 10**6)
    assert not slow.is_short(3, 0)
    assert slow.is_short(2, 0)


def test_two_that_are_slower_together_go_one_after_the_other() -> None:
    dip = cost_model(4.0, 12.3, 12.5, 17.0, 27.0)
    assert [best_decode_width(dip, [0] * running) for running in (1, 2, 3, 4, 8, 16)] == [1, 1, 1, 4, 8, 16]
    assert best_decode_width(cost_model(4.0, 8.1), [0, 0]) == 2, "a difference within the noise is none"
    assert best_decode_width(cost_model(4.0, 8.2), [0, 0]) == 1


def test_nobody_is_left_out_for_a_little_more_speed() -> None:
    dip = cost_model(4.0, 5.0, 6.0, 13.0)
    assert [best_decode_width(dip, [0] * running) for running in (4, 8)] == [4, 8]
    assert best_decode_width(cost_model(4.0, 5.0, 6.0, 20.0), [0] * 8) == 4


def test_a_deep_sequence_may_be_left_out() -> None:
    shallow = cost_model(1.0, 1.2, per_cell=1e-3)
    assert best_decode_width(shallow, [0, 0]) == 2
    assert best_decode_width(shallow, [0, 5000]) == 1


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 40))
def test_turns_starve_nobody_and_always_serve_the_most_urgent(width: int, running: int, steps: int) -> None:
    waited = [0] * running
    for _ in range(steps):
        chosen = round_robin(width, waited)
        assert chosen[: width - 1] == list(range(min(width - 1, running)))[: len(chosen)]
        assert len(set(chosen)) == len(chosen) == min(width, running)
        waited = [0 if index in chosen else count + 1 for index, count in enumerate(waited)]
        assert max(waited) <= max(running - width, 0)


@given(
    cost_models(),
    times,
    st.lists(st.tuples(st.integers(1, 300), st.integers(0, 5000)), min_size=1, max_size=16),
)
def test_a_step_is_divided_among_its_sequences(
    costs: StepCostModel, seconds: float, parts: list[tuple[int, int]]
) -> None:
    shares = divide_step(costs, seconds, parts)
    assert sum(share.work for share in shares) == pytest.approx(seconds)
    assert all(0 < share.packed <= share.alone for share in shares)
    slower = divide_step(costs, 3 * seconds, parts)
    assert [share.alone for share in slower] == pytest.approx([3 * share.alone for share in shares])


@given(cost_models(), times, st.lists(st.integers(1, 5000), min_size=1, max_size=len(SIZES)))
def test_no_step_that_decodes_is_quicker_than_packed_ones(
    costs: StepCostModel, seconds: float, depths: list[int]
) -> None:
    widest = depths[: costs.decode.sizes[-1]]
    shares = divide_step(costs, seconds, [(1, depth) for depth in widest])
    assert sum(share.packed for share in shares) <= seconds * (1 + 1e-9)


def test_alone_is_what_the_model_expects_at_the_speed_of_the_machine_now() -> None:
    costs = cost_model(1.0, 1.2, prefill=0.5)
    (one, other) = divide_step(costs, 2.4, [(1, 0), (1, 0)])
    assert one == other
    assert (one.work, one.alone, one.packed) == pytest.approx((1.2, 2.0, 1.2))


def test_widths_in_doubt_are_those_that_would_leave_sequences_out() -> None:
    even = {1: [1.0], 2: [1.7, 1.9], 4: [], 8: [7.4]}
    assert wasteful_widths(even) == []
    assert wasteful_widths(even | {8: [8.1], 16: [14.0]}) == [2, 8], "a ninth fewer tokens a second than two make"
    assert wasteful_widths({1: [1.0], 2: [2.05]}) == [1, 2], "fewer than one sequence makes alone"
    assert wasteful_widths(even | {2: [1.0, 9.0, 1.0]}) == [2, 8], "the median counts"
