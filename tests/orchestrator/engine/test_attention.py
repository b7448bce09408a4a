"""Which kind of attention an engine uses, by arithmetic."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.step_cost.attention import (
    ANSWER_TOKENS,
    LONG_CONTEXT,
    MAX_POOLED_SLOTS,
    MIN_SAVING,
    Attention,
    AttentionChoice,
    AttentionCosts,
    MeasuredAttention,
    first_attention,
    may_keep_scores,
)
from orchestrator.registry.options import MAX_SCORES

SPEC = EngineSpec(file="m.gguf", slots=MAX_POOLED_SLOTS + 1)


@pytest.mark.parametrize(
    ("settings", "context", "heads", "split", "kept"),
    [
        ({}, LONG_CONTEXT, 12, True, True),
        ({}, LONG_CONTEXT - 1, 12, True, False),
        ({}, MAX_SCORES // 32, 32, True, True),
        ({}, MAX_SCORES // 32 + 1, 32, True, False),
        ({"batch_invariant": True}, LONG_CONTEXT, 12, True, False),
        ({"kv_type_v": "q8_0"}, LONG_CONTEXT, 12, True, False),
        ({}, LONG_CONTEXT, 12, False, False),
        ({"slots": MAX_POOLED_SLOTS}, LONG_CONTEXT, 12, False, True),
        ({"slots": MAX_POOLED_SLOTS, "cells": 2 * MAX_SCORES // 12}, LONG_CONTEXT, 12, False, False),
    ],
)
def test_scores_may_be_kept_where_sequences_are_long_and_room_is_there(
    settings: dict[str, object], context: int, heads: int, split: bool, kept: bool
) -> None:
    spec = replace(SPEC, **settings)  # type: ignore[arg-type]
    assert may_keep_scores(spec, context=context, heads=heads, split=split) is kept


FLASH = AttentionCosts(prompt=0.002, first=0.01, widest=0.09, width=16, per_cell=8e-6)
SCORES = AttentionCosts(prompt=0.002, first=0.01, widest=0.11, width=16, per_cell=1e-6)
PRICE = 2.0
Load = tuple[int, int, int]  # tokens of prompts, decoded tokens, and the cells that these attend to
NOTES: Load = (0, 16, 16 * 80)
LONG: Load = (0, 4, 4 * 4000)


def step_seconds(kind: Attention, load: Load, scores_excess: float = 1.0) -> float:
    return FLASH.seconds(*load) if kind == "on" else scores_excess * SCORES.seconds(*load)


def run(choice: AttentionChoice, load: Load, steps: int, scores_excess: float = 1.0, slower: float = 1.0) -> int:
    """Do steps, idle after each, and return how often the kind changed.

    Scores take `scores_excess` times as long as they were measured, and everything takes `slower` times as long.
    """
    changes = 0
    for _ in range(steps):
        choice.record(*load, slower * step_seconds(choice.attention, load, scores_excess))
        if choice.change_is_due(PRICE):
            choice.change()
            changes += 1
    return changes


def test_a_step_costs_what_its_prompts_its_sequences_and_their_cells_cost() -> None:
    assert FLASH.seconds(0, 1, 0) == pytest.approx(0.01)
    assert FLASH.seconds(0, 16, 1000) == pytest.approx(0.09 + 0.008)
    assert FLASH.seconds(100, 0, 0) == pytest.approx(0.2)
    alone = replace(FLASH, width=1, widest=0.01)
    assert alone.seconds(0, 3, 0) == pytest.approx(0.01 + 2 * 0.002), "drafts cost as much as tokens of a prompt"
    with pytest.raises(ValueError, match="positive"):
        replace(FLASH, first=0.0)


def test_scores_come_first_where_they_save_a_clear_part_of_a_long_answer() -> None:
    whole = FLASH.answer_seconds
    saving = MIN_SAVING * whole / (ANSWER_TOKENS * LONG_CONTEXT)
    assert first_attention(FLASH, replace(FLASH, per_cell=FLASH.per_cell - 1.01 * saving)) == "off"
    assert first_attention(FLASH, replace(FLASH, per_cell=FLASH.per_cell - 0.99 * saving)) == "on"


def test_short_texts_get_flash_attention_when_it_would_have_paid_and_long_ones_scores_again() -> None:
    choice = AttentionChoice(MeasuredAttention("off", FLASH, SCORES))
    saved = step_seconds("off", NOTES) - step_seconds("on", NOTES) - MIN_SAVING * step_seconds("off", NOTES)
    assert saved == pytest.approx(0.0, abs=0.002), "a difference that hardly counts"
    assert run(choice, NOTES, 100) == 0
    measured = MeasuredAttention("off", FLASH, replace(SCORES, widest=0.14))
    choice = AttentionChoice(measured)
    assert [run(choice, NOTES, 2000), choice.attention] == [1, "on"]
    assert [run(choice, LONG, 2000), choice.attention] == [1, "off"]
    assert run(choice, LONG, 10_000) == 0


def test_a_slow_machine_is_no_reason_to_change() -> None:
    choice = AttentionChoice(MeasuredAttention("off", FLASH, SCORES))
    for slower in (1.0, 3.0, 0.5):
        assert run(choice, LONG, 5000, slower=slower) == 0


def test_a_kind_that_is_slower_than_measured_is_left_and_not_tried_again() -> None:
    choice = AttentionChoice(MeasuredAttention("on", FLASH, SCORES))
    assert run(choice, LONG, 5000, scores_excess=4.5) == 2
    assert choice.attention == "on"
    assert run(choice, LONG, 20_000, scores_excess=4.5) == 0


def test_a_pool_is_compared_by_what_its_step_would_have_taken_in_streams() -> None:
    choice = AttentionChoice(MeasuredAttention("on", FLASH, SCORES))
    streams = FLASH.seconds(*LONG)
    choice.record(*LONG, SCORES.seconds(*LONG), 1000, split=streams)
    assert choice.regret == 0.0, "the pool is as fast as scores"
    choice.record(*LONG, streams, 1000, split=streams)
    assert choice.regret > PRICE


prompts = st.tuples(st.integers(1, 256), st.just(0), st.just(0))
decodes = st.tuples(st.just(0), st.integers(1, 16), st.integers(0, 20_000))


@given(st.lists(st.tuples(prompts | decodes, st.integers(1, 100)), min_size=1, max_size=6), st.floats(0.01, 2.0))
def test_waiting_costs_no_more_than_the_change(work: list[tuple[Load, int]], price: float) -> None:
    """Between two changes, what the other kind would have saved since any moment is at most the price."""
    choice, lost = AttentionChoice(MeasuredAttention("off", FLASH, SCORES)), 0.0
    for load, steps in work:
        for _ in range(steps):
            mine, other = (step_seconds(kind, load) for kind in ("off", "on"))
            if choice.attention == "on":
                mine, other = other, mine
            lost = max(0.0, lost + mine - other - MIN_SAVING * mine)
            choice.record(*load, mine)
            if choice.change_is_due(price):
                choice.change()
                lost = 0.0
            assert lost <= price * (1 + 1e-9)


def test_streams_are_the_default_unless_a_pool_is_asked_for() -> None:
    assert SPEC.splits_cache
    assert not replace(SPEC, cells=4096).splits_cache
    assert not replace(SPEC, split=False).splits_cache
