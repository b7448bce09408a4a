import math
from dataclasses import replace
from itertools import pairwise, product
from math import inf
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engine.speculation.controller import (
    COMPUTED,
    MIN_GAIN_OF_ONE,
    MIN_GAIN_OF_SEVERAL,
    Acceptance,
    DraftCandidate,
    RefusalPauses,
    SpeculationController,
    common_draft_length,
    draft_lengths,
    model_acceptance,
    plain_seconds,
    sequence_acceptance,
)
from orchestrator.engine.step_cost.model import MAX_PADDING, Points, StepCostModel
from orchestrator.registry.options import DRAFTING, DraftName

POWERS = (1, 2, 4, 8, 16, 32, 64)


def cost_model(*one: float, per_cell: float = 0.0) -> StepCostModel:
    points = Points(POWERS[: len(one)], one)
    return StepCostModel(points, points, prefill=1.0, per_cell=per_cell)


COMPUTE_BOUND = cost_model(1.0, 1.4, 2.26, 4.37, 5.91, 10.0, 20.0)
"""Two cores."""
BANDWIDTH_BOUND = cost_model(1.0, 1.01, 1.03, 1.08, 1.2, 1.6, 2.4)
"""Many cores."""

one_sequence = st.builds(
    DraftCandidate,
    acceptance=st.floats(0, 1),
    max_tokens=st.integers(0, 4),
    priority=st.sampled_from([-1.0, 0.0, 5.0, inf]),
)
with_catch_up = st.builds(
    lambda sequence, catch_up_cost: replace(sequence, catch_up_cost=catch_up_cost), one_sequence, st.floats(0, 0.5)
)


@st.composite
def cost_models(draw: st.DrawFn) -> StepCostModel:
    times = st.floats(0.1, 10.0)
    first = draw(times)
    rest = st.lists(times, min_size=4, max_size=4)
    sizes = POWERS[:5]
    return StepCostModel(Points(sizes, (first, *draw(rest))), Points(sizes, (first, *draw(rest))), 0.1, 0.0)


def enough(sequences: list[DraftCandidate]) -> float:
    return 1 + (MIN_GAIN_OF_ONE if len(sequences) == 1 else MIN_GAIN_OF_SEVERAL)


def drafting_seconds(sequence: DraftCandidate, length: int) -> float:
    return sum(sequence.seconds(order) for order in range(1, length + 1))


def tokens_per_second(costs: StepCostModel, sequences: list[DraftCandidate], lengths: list[int]) -> float:
    """Equation 1 of Leviathan et al. 2023 over the time of the step."""
    width = len(sequences)
    tokens = sum(sum(s.acceptance**j for j in range(length + 1)) for s, length in zip(sequences, lengths, strict=True))
    drafting = sum(drafting_seconds(s, length) for s, length in zip(sequences, lengths, strict=True))
    cells = sum(s.depth * (length + 1) for s, length in zip(sequences, lengths, strict=True))
    return tokens / (costs.seconds(width + sum(lengths), width, cells) + drafting)


@settings(deadline=None)
@given(cost_models(), st.lists(one_sequence, min_size=1, max_size=3), st.integers(0, 12))
def test_no_other_lengths_promise_more(
    costs: StepCostModel, sequences: list[DraftCandidate], token_budget: int
) -> None:
    lengths = draft_lengths(costs, sequences, token_budget=token_budget, batch_invariant=False)
    fitting = [c for c in product(*(range(s.max_tokens + 1) for s in sequences)) if sum(c) <= token_budget]
    best = max(tokens_per_second(costs, sequences, list(choice)) for choice in fitting)
    blur = 0.01 * sum(lengths) / costs.seconds(1, 1)
    assert tokens_per_second(costs, sequences, lengths) >= best / enough(sequences) - blur - best * 0.02


@given(
    cost_models(),
    st.lists(
        st.builds(
            DraftCandidate,
            acceptance=st.floats(0, 1),
            max_tokens=st.integers(0, 64),
            priority=st.floats(-10, 10),
            depth=st.integers(0, 4000),
            cost=st.floats(0, 2),
            catch_up_cost=st.floats(0, 1),
        ),
        max_size=70,
    ),
    st.integers(-3, 200),
    st.booleans(),
    st.sampled_from([0.0, 1e-6, 1e-3]),
)
def test_lengths_keep_every_limit_and_promise_more_than_no_drafts(
    costs: StepCostModel, sequences: list[DraftCandidate], token_budget: int, batch_invariant: bool, per_cell: float
) -> None:
    costs = replace(costs, per_cell=per_cell)
    lengths = draft_lengths(costs, sequences, token_budget=token_budget, batch_invariant=batch_invariant)
    assert len(lengths) == len(sequences)
    assert all(0 <= length <= s.max_tokens for length, s in zip(lengths, sequences, strict=True))
    assert sum(lengths) <= max(token_budget, 0)
    if any(lengths):
        assert not batch_invariant or sum(lengths) + len(sequences) < 64
        plain = tokens_per_second(costs, sequences, [0] * len(sequences))
        assert tokens_per_second(costs, sequences, lengths) > plain * enough(sequences) * (1 - 1e-9)


def lone(acceptance: float, max_tokens: int = 24, cost: float = 0.0) -> list[DraftCandidate]:
    return [DraftCandidate(acceptance, max_tokens, 0.0, cost=cost)]


def test_the_machine_the_acceptance_and_the_cost_decide() -> None:
    def length(costs: StepCostModel, acceptance: float, cost: float = 0.0) -> int:
        return draft_lengths(costs, lone(acceptance, cost=cost), token_budget=500, batch_invariant=False)[0]

    assert length(COMPUTE_BOUND, 0.2) == 0
    assert 0 < length(COMPUTE_BOUND, 0.6) < length(COMPUTE_BOUND, 0.9) < length(COMPUTE_BOUND, 1.0) == 24
    assert length(BANDWIDTH_BOUND, 0.2) > 0
    assert length(BANDWIDTH_BOUND, 0.95) == 24
    assert length(BANDWIDTH_BOUND, 0.7) > length(BANDWIDTH_BOUND, 0.7, cost=0.1) > length(BANDWIDTH_BOUND, 0.7, 0.6)
    assert length(BANDWIDTH_BOUND, 0.7, cost=0.8) == 0


def test_a_long_catch_up_pays_only_for_a_long_answer() -> None:
    def lengths(left: int) -> tuple[list[int], int]:
        sequences = [replace(sequence, catch_up_cost=5.0 / left) for sequence in lone(0.8, cost=0.05)]
        common = common_draft_length(BANDWIDTH_BOUND, sequences, token_budget=500, batch_invariant=False)
        return draft_lengths(BANDWIDTH_BOUND, sequences, token_budget=500, batch_invariant=False), common

    assert lengths(4) == ([0], 0)
    (long,), common = lengths(1000)
    assert long == common > 0


def test_many_sequences_leave_less_to_gain() -> None:
    def drafts(width: int) -> int:
        return sum(draft_lengths(COMPUTE_BOUND, lone(0.7) * width, token_budget=500, batch_invariant=False))

    assert drafts(1) > 0
    assert drafts(32) == 0


def test_several_sequences_draft_only_for_a_clear_gain() -> None:
    slightly = cost_model(1.0, 1.0, 1.46, 3.0)
    assert draft_lengths(slightly, lone(0.5, max_tokens=1), token_budget=9, batch_invariant=False) == [1]
    assert draft_lengths(slightly, lone(0.5, max_tokens=1) * 2, token_budget=9, batch_invariant=False) == [0, 0]
    assert common_draft_length(slightly, lone(0.5, max_tokens=1) * 2, token_budget=9, batch_invariant=False) == 0
    assert common_draft_length(slightly, lone(0.7, max_tokens=1) * 2, token_budget=9, batch_invariant=False) == 1


def test_a_step_in_the_cost_model_is_taken_when_it_is_used_to_the_full() -> None:
    stairs = cost_model(1.0, 2.2, 2.3)
    assert draft_lengths(stairs, lone(0.9, max_tokens=1), token_budget=9, batch_invariant=False) == [0]
    assert draft_lengths(stairs, lone(0.9, max_tokens=3), token_budget=9, batch_invariant=False) == [3]


@given(cost_models(), st.lists(with_catch_up, min_size=1, max_size=5), st.integers(0, 60))
def test_no_other_common_length_promises_more(
    costs: StepCostModel, sequences: list[DraftCandidate], token_budget: int
) -> None:
    width = len(sequences)
    length = common_draft_length(costs, sequences, token_budget=token_budget, batch_invariant=False)
    max_tokens = max(s.max_tokens for s in sequences)
    assert 0 <= length * width <= max(token_budget, 0)
    assert length <= max_tokens + MAX_PADDING * (max_tokens > 0)

    def rate(length: int) -> float:
        tokens = sum(s.acceptance**j for s in sequences for j in range(min(length, s.max_tokens) + 1))
        drafting = sum(drafting_seconds(s, min(length, s.max_tokens)) for s in sequences)
        return tokens / (costs.seconds(width * (length + 1), width, 0) + drafting)

    others = [rate(other) for other in range(max_tokens + 1) if other * width <= token_budget]
    assert rate(length) >= max(others) / enough(sequences) * (1 - 1e-9)


def test_a_tile_is_filled_with_padding() -> None:
    points = Points((1, 2, 3, 4), (10.0, 15.0, 20.0, 16.0))
    tiles = StepCostModel(points, points, 5.0, 0.0)
    assert common_draft_length(tiles, lone(0.9, max_tokens=2), token_budget=9, batch_invariant=False) == 3
    assert common_draft_length(tiles, lone(0.9, max_tokens=2), token_budget=2, batch_invariant=False) == 2
    assert common_draft_length(tiles, lone(0.9, max_tokens=0), token_budget=9, batch_invariant=False) == 0


def test_tokens_that_would_be_computed_again_count_against_a_draft() -> None:
    def length(costs: StepCostModel, acceptance: float, *, free_rollback: int | None = 0) -> int:
        sequences = lone(acceptance, max_tokens=4)
        return common_draft_length(costs, sequences, token_budget=9, batch_invariant=False, free_rollback=free_rollback)

    assert [length(COMPUTE_BOUND, rate) for rate in (0.6, 0.7, 0.75, 0.95)] == [0, 0, 1, 3]
    assert length(COMPUTE_BOUND, 0.7, free_rollback=2) == 1
    assert length(BANDWIDTH_BOUND, 0.7) == 4
    for acceptance in (0.3, 0.5, 0.7, 0.9):
        assert length(BANDWIDTH_BOUND, acceptance) <= length(BANDWIDTH_BOUND, acceptance, free_rollback=None)
    assert length(COMPUTE_BOUND, 1.0) == length(COMPUTE_BOUND, 1.0, free_rollback=None), "nothing is computed again"


def test_padding_is_computed_again_with_certainty() -> None:
    slow = cost_model(1.0, 1.01, 1.6, 1.7)
    both = [*lone(1.0, max_tokens=3), *lone(1.0, max_tokens=0)]
    assert common_draft_length(slow, both, token_budget=9, batch_invariant=False) == 3
    assert common_draft_length(slow, both, token_budget=9, batch_invariant=False, free_rollback=0) < 3


def test_of_equal_drafts_those_with_the_highest_priority_come_first() -> None:
    sequences = [DraftCandidate(0.801, 8, 60.0), DraftCandidate(0.8, 8, 0.0), DraftCandidate(0.802, 8, inf)]
    assert draft_lengths(BANDWIDTH_BOUND, sequences, token_budget=1, batch_invariant=False) == [0, 1, 0]
    assert draft_lengths(BANDWIDTH_BOUND, sequences, token_budget=2, batch_invariant=False) == [1, 1, 0]
    sequences[2] = DraftCandidate(0.95, 8, inf)
    assert draft_lengths(BANDWIDTH_BOUND, sequences, token_budget=1, batch_invariant=False) == [0, 0, 1]


def test_deep_sequences_draft_less() -> None:
    deep = cost_model(1.0, 1.01, 1.03, 1.08, 1.2, 1.6, 2.4, per_cell=1e-4)
    sequences = [DraftCandidate(0.8, 8, 0.0, depth=4000), DraftCandidate(0.8, 8, 0.0, depth=10)]
    lengths = draft_lengths(deep, sequences, token_budget=500, batch_invariant=False)
    assert lengths[0] < lengths[1]


def test_acceptance_follows_what_is_observed() -> None:
    sequence = sequence_acceptance(model_acceptance())["lookup"]
    for _ in range(100):
        sequence.observe(8, 8)
    assert sequence.rate > 0.95
    for _ in range(20):
        sequence.observe(8, 0)
    assert sequence.rate < 0.5
    for _ in range(300):
        sequence.observe(4, 3)
    assert sequence.rate == pytest.approx(0.75, abs=0.05)
    for _ in range(300):
        sequence.observe(8, 1)
    assert sequence.rate == pytest.approx(0.5, abs=0.05), "what comes after the first refused token was never tried"


def test_new_sequences_start_from_the_estimate_of_their_model_by_source() -> None:
    model = model_acceptance()
    before = model["draft"].rate
    for _ in range(50):
        sequence_acceptance(model)["lookup"].observe(6, 0)
    assert sequence_acceptance(model)["lookup"].rate < 0.1
    assert sequence_acceptance(model)["draft"].rate == before


def test_the_estimate_of_a_draft_model_outweighs_a_few_rejected_tokens() -> None:
    model = model_acceptance()
    for _ in range(500):
        for source in model:
            model[source].observe(3, 3)
    sequence = sequence_acceptance(model)
    for source in sequence:
        for _ in range(3):
            sequence[source].observe(3, 0)
    assert sequence["draft"].rate > 0.8
    assert sequence["lookup"].rate < 0.6, "a text may turn from copying to something new at any time"
    for _ in range(60):
        sequence["draft"].observe(3, 0)
    assert sequence["draft"].rate < 0.3


def test_rejected_drafts_are_tried_again_after_a_while() -> None:
    model = model_acceptance()
    sequence = sequence_acceptance(model)["lookup"]
    for _ in range(200):
        sequence.observe(4, 0)
    assert draft_lengths(COMPUTE_BOUND, lone(sequence.rate), token_budget=50, batch_invariant=False) == [0]
    steps = 0
    while draft_lengths(COMPUTE_BOUND, lone(sequence.rate), token_budget=50, batch_invariant=False) == [0]:
        sequence.observe(0, 0)
        steps += 1
        assert steps < 5000
    assert steps > 100


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=60), st.floats(0, 1))
def test_acceptance_stays_a_probability(steps: list[tuple[int, int]], prior: float) -> None:
    sequence = Acceptance(Acceptance(prior, 100), 10)
    for drafted, accepted in steps:
        sequence.observe(drafted, min(drafted, accepted))
        assert 0 <= sequence.rate <= 1


def test_plain_time_is_that_of_steps_of_the_same_width() -> None:
    slow = cost_model(1.0, 1.5, per_cell=0.01)
    assert plain_seconds(slow, [0], 3) == 3.0
    assert plain_seconds(slow, [10, 40], 6) == 3 * (1.5 + 0.5)


def run(controller: SpeculationController, steps: int, gain: float) -> None:
    for _ in range(steps):
        controller.record(4, 1, 1.0, 1.0 - gain)


def skip_until_enabled(controller: SpeculationController) -> int:
    steps = 0
    while not controller.enabled:
        controller.skip_step()
        steps += 1
    return steps


def test_the_controller_adds_up() -> None:
    controller = SpeculationController()
    controller.record(4, 3, 4.0, 2.5)
    controller.record(2, 0, 1.0, 1.25)
    assert (controller.total.drafted, controller.total.accepted, controller.saved_seconds) == (6, 3, 1.25)


def test_what_does_not_pay_is_switched_off_with_the_reason_and_tried_again_more_rarely() -> None:
    controller = SpeculationController()
    run(controller, SpeculationController.WINDOW, -0.25)
    assert controller.reason == (
        "off for 64 steps: in the last 32 steps that drafted, 32 of 128 draft tokens were accepted, "
        "and decoding took 25.0% more time than without"
    )
    pauses = []
    for _ in range(10):
        pauses.append(skip_until_enabled(controller))
        assert controller.reason == "on trial for 32 steps"
        run(controller, SpeculationController.WINDOW, -0.25)
    assert pauses == [64, 128, 256, *[512] * 7]


def test_a_trial_must_gain_and_then_the_pause_is_short_again() -> None:
    controller = SpeculationController()
    run(controller, SpeculationController.WINDOW, -0.25)
    skip_until_enabled(controller)
    run(controller, SpeculationController.WINDOW, 0.0)
    assert not controller.enabled, "a draw is not enough to come back"
    skip_until_enabled(controller)
    run(controller, SpeculationController.WINDOW, 0.2)
    assert controller.enabled
    assert controller.reason.startswith("on: in the last 32 steps")
    assert "20.0% less time" in controller.reason
    run(controller, SpeculationController.WINDOW, 0.0)
    assert controller.enabled, "a draw is enough to stay"
    run(controller, SpeculationController.WINDOW, -0.25)
    assert skip_until_enabled(controller) == SpeculationController.PAUSE


def test_random_gains_are_distinguished_from_a_loss() -> None:
    unlucky, losing = SpeculationController(), SpeculationController()
    for step in range(SpeculationController.WINDOW):
        unlucky.record(3, 0, 1.0, 1.5) if step % 2 else unlucky.record(3, 3, 4.0, 3.6)
        losing.record(3, 0, 1.0, 1.5)
    assert unlucky.saved_seconds < 0
    assert unlucky.enabled
    assert not losing.enabled


def test_an_unlucky_start_does_not_end_the_drafts_of_a_model() -> None:
    model = model_acceptance()
    sequence = sequence_acceptance(model)["draft"]
    for _ in range(8):
        sequence.observe(3, 1)
    assert 8 / 16 < sequence_acceptance(model)["draft"].rate < COMPUTED.rate
    for _ in range(500):
        sequence.observe(3, 1)
    assert sequence_acceptance(model)["draft"].rate == pytest.approx(0.5, abs=0.03)


def carry_on(controller: SpeculationController, steps: int, gain: float) -> tuple[float, int]:
    """Decode on, with drafts while they are on. Return the time lost in steps without drafts, and how many drafted."""
    lost, drafted = 0.0, 0
    for _ in range(steps):
        if controller.enabled:
            controller.record(4, 1, 0.1, 0.1 * (1 - gain))
            lost -= gain
            drafted += 1
        else:
            controller.skip_step()
    return lost, drafted


times = st.one_of(st.floats(1e-4, 1e4), st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -1.0, 1e300, 1e-300]))
pasts = st.lists(st.tuples(times, times, st.integers(1, 100)), max_size=30)
"""Stretches of steps: the time without drafts that was assumed, the time that they took, and how many there were."""


def after(past: list[tuple[float, float, int]]) -> SpeculationController:
    controller = SpeculationController()
    for plain, seconds, count in past:
        for _ in range(count):
            if controller.enabled:
                controller.record(4, 1, plain, seconds)
            else:
                controller.skip_step()
    return controller


@given(pasts, st.floats(0.05, 0.9))
def test_after_any_past_drafts_that_pay_are_on_within_a_pause_and_two_windows(
    past: list[tuple[float, float, int]], gain: float
) -> None:
    controller = after(past)
    assert math.isfinite(controller.saved_seconds)
    carry_on(
        controller,
        SpeculationController.LONGEST_PAUSE + 2 * SpeculationController.WINDOW + SpeculationController.PAUSE,
        gain,
    )
    assert carry_on(controller, 200, gain)[1] == 200


@given(pasts, st.floats(0.05, 2.0))
def test_after_any_past_trials_of_drafts_that_do_not_pay_cost_a_fiftieth_at_most(
    past: list[tuple[float, float, int]], loss: float
) -> None:
    controller = after(past)
    carry_on(controller, 1200, -loss)
    assert carry_on(controller, 10_000, -loss)[0] <= 0.021 * 10_000


def test_a_trial_that_loses_much_ends_early() -> None:
    controller = SpeculationController()
    run(controller, SpeculationController.WINDOW, -1.0)
    skip_until_enabled(controller)
    run(controller, 7, -1.0)
    assert controller.enabled
    run(controller, 1, -1.0)
    assert not controller.enabled
    assert "in the last 8 steps that drafted" in controller.reason


def test_what_never_pays_costs_little_in_the_long_run() -> None:
    assert carry_on(SpeculationController(), 10_000, -0.3)[0] < 0.02 * 10_000


@settings(max_examples=12)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(1, 200)), max_size=20),
    st.sampled_from(get_args(DraftName)),
)
def test_after_any_past_good_drafts_are_made_again(past: list[tuple[int, int, int]], source: DraftName) -> None:
    model = model_acceptance()
    sequence = sequence_acceptance(model)[source]
    for drafted, accepted, count in past:
        for _ in range(count):
            sequence.observe(drafted, min(drafted, accepted))

    def step() -> int:
        candidates = [DraftCandidate(sequence.rate, 4, 0.0, cost=0.0 if DRAFTING[source].copies else 0.1)]
        (length,) = draft_lengths(COMPUTE_BOUND, candidates, token_budget=50, batch_invariant=False)
        sequence.observe(length, length)
        return length

    for _ in range(2500):
        step()
    assert all(step() for _ in range(100))


def considered(pauses: RefusalPauses, width: int, steps: int) -> list[int]:
    """Refuse all drafts. Return the steps for which they were considered."""
    numbers = []
    for number in range(steps):
        if not pauses.skips(width):
            pauses.record(width, refused=True)
            numbers.append(number)
    return numbers


def test_drafts_that_are_always_refused_are_seldom_considered() -> None:
    pauses = RefusalPauses()
    row = RefusalPauses.ROW
    numbers = considered(pauses, 4, 4000)
    assert numbers[:row] == list(range(row))
    gaps = [after - before - 1 for before, after in pairwise(numbers[row - 1 :])]
    assert set(gaps) == {RefusalPauses.PAUSE}
    assert len(numbers) < 0.02 * 4000


def test_a_refusal_at_one_width_says_nothing_about_another() -> None:
    pauses = RefusalPauses()
    considered(pauses, 4, RefusalPauses.ROW)
    assert pauses.skips(4)
    assert not pauses.skips(1)


def test_a_draft_ends_the_refusals_in_a_row() -> None:
    pauses = RefusalPauses()
    considered(pauses, 1, RefusalPauses.ROW + RefusalPauses.PAUSE)
    assert pauses.is_over(1)
    assert not pauses.skips(1)
    pauses.record(1, refused=False)
    assert considered(pauses, 1, RefusalPauses.ROW + 1) == list(range(RefusalPauses.ROW))
