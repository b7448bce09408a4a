"""The arithmetic of what prompts were expected to share, and of why they did not."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.steps.attempt import added
from orchestrator.task.events import Usage
from orchestrator.task.reuse import BLOCK, LEAST, LOSS_TEXTS, LossCause, Reuse, compare, with_other_engine

CAUSES: tuple[LossCause, ...] = get_args(LossCause)
causes = st.lists(st.sampled_from(CAUSES), max_size=8)
reuses = st.builds(
    lambda reused, lost: Reuse(reused + sum(lost.values()), lost),
    st.integers(0, 1000),
    st.dictionaries(st.sampled_from(CAUSES), st.integers(1, 1000)),
)


def test_each_cause_has_words() -> None:
    assert set(LOSS_TEXTS) == set(CAUSES)


@given(causes, st.integers(0, 200))
def test_each_expected_token_is_reused_or_has_a_cause(expected: list[LossCause], cached: int) -> None:
    reuse = compare(cached, expected)
    if abs(cached - BLOCK * len(expected)) < LEAST:
        assert reuse == Reuse(cached), "so small a difference is none"
        return
    assert reuse.expected_tokens == BLOCK * len(expected)
    assert reuse.reused_tokens == min(cached, reuse.expected_tokens)
    missing = expected[cached // BLOCK :]
    assert set(reuse.lost_tokens) == set(missing)
    for cause, tokens in reuse.lost_tokens.items():
        assert BLOCK * (missing.count(cause) - 1) < tokens <= BLOCK * missing.count(cause)


@given(reuses, reuses)
def test_sums_keep_every_token(first: Reuse, second: Reuse) -> None:
    both = first + second
    assert both == second + first
    assert both.expected_tokens == first.expected_tokens + second.expected_tokens
    assert both.reused_tokens == first.reused_tokens + second.reused_tokens
    assert added(Usage(output_tokens=1, reuse=first), Usage(reuse=second)) == Usage(output_tokens=1, reuse=both)
    assert [tokens for _, tokens in both.losses] == sorted(both.lost_tokens.values(), reverse=True)


@given(causes, st.integers(0, 200), st.integers(0, 300), st.integers(0, 12))
def test_what_another_engine_had_is_lost_and_never_more_than_the_prompt(
    expected: list[LossCause], cached: int, more: int, blocks: int
) -> None:
    prompt = max(cached, BLOCK * len(expected)) + more
    here = compare(cached, expected)
    reuse = with_other_engine(here, cached, prompt, blocks, "other engine")
    assert reuse.reused_tokens == here.reused_tokens
    assert here.expected_tokens <= reuse.expected_tokens <= prompt
    if reuse != here:
        assert reuse.expected_tokens - here.expected_tokens >= LEAST
        assert reuse.expected_tokens - here.lost_tokens.get("prompt differs", 0) <= BLOCK * blocks


@pytest.mark.parametrize(("blocks", "lost"), [(0, {}), (4, {}), (10, {"engine restarted": 96})])
def test_another_engine_counts_from_where_this_one_ends(blocks: int, lost: dict[LossCause, int]) -> None:
    assert with_other_engine(Reuse(64), 64, 500, blocks, "engine restarted") == Reuse(64 + sum(lost.values()), lost)
