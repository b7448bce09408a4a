from dataclasses import replace

import pytest

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.step_cost.attention import (
    LONG_CONTEXT,
    MAX_POOLED_SLOTS,
    MIN_SAVING,
    may_keep_scores,
    should_keep_scores,
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


def test_scores_are_kept_where_they_save_a_clear_part_of_the_time() -> None:
    assert should_keep_scores(0.99 * (1 - MIN_SAVING), 1.0)
    assert not should_keep_scores(1.01 * (1 - MIN_SAVING), 1.0)


def test_streams_are_the_default_unless_a_pool_is_asked_for() -> None:
    assert SPEC.splits_cache
    assert not replace(SPEC, cells=4096).splits_cache
    assert not replace(SPEC, split=False).splits_cache
