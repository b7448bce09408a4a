"""What is expected of the cache, by the prompts before. There is no cache: each test says what it holds."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.kv import prompt_history
from orchestrator.engine.kv.prefix_tree import Tokens, common_prefix
from orchestrator.engine.kv.prompt_history import PromptHistory, block_digests
from orchestrator.registry.options import Lora
from orchestrator.task.reuse import BLOCK, LEAST, LossCause, Reuse

END = 99  # a control token
IS_CONTROL = np.arange(100) == END


def tokens(*parts: tuple[int, int]) -> Tokens:
    """Return parts of a prompt, each a token and how often it comes."""
    return np.concatenate([np.full(count, token) for token, count in parts]).astype(np.int32)


def enter(history: PromptHistory, number: int, prompt: Tokens, cached: int = 0, **more: object) -> Reuse:
    options: dict[str, object] = {"lora": (), "held": cached, "obstacle": "too short", **more}
    return history.enter(number, prompt, cached=cached, **options)[0]  # type: ignore[arg-type]


def answer(history: PromptHistory, number: int, prompt: Tokens, cached: int = 0) -> Reuse:
    reuse = enter(history, number, prompt, cached)
    history.leave(number, len(prompt))
    return reuse


prompts = st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40)), min_size=1, max_size=4), max_size=8)


@given(prompts)
def test_the_longest_start_of_an_earlier_prompt_is_expected(drawn: list[list[tuple[int, int]]]) -> None:
    history, earlier = PromptHistory(), list[Tokens]()
    for number, parts in enumerate(drawn):
        prompt = tokens(*parts)
        shared = max((common_prefix(prompt[:-1], other) for other in earlier), default=0)
        assert answer(history, number, prompt, cached=shared) == Reuse(shared), "a perfect cache loses nothing"
        lost = answer(history, number, prompt)
        if len(prompt) <= LEAST:
            assert lost == Reuse(), "so few are not worth sharing"
        else:
            assert len(prompt) - 1 - BLOCK < lost.expected_tokens < len(prompt)
            assert lost.lost_tokens == {"evicted": lost.expected_tokens}
        earlier.append(prompt)


@given(prompts)
def test_digests_are_of_all_tokens_up_to_the_end_of_a_block(drawn: list[list[tuple[int, int]]]) -> None:
    for first, second in pairwise([tokens(*parts) for parts in drawn]):
        same = [one == other for one, other in zip(block_digests(first), block_digests(second), strict=False)]
        assert same == [BLOCK * (at + 1) <= common_prefix(first, second) for at in range(len(same))]


def test_prompts_with_different_adapters_share_nothing() -> None:
    history, prompt = PromptHistory(IS_CONTROL), tokens((END, 1), (1, 100))
    answer(history, 1, prompt)
    assert enter(history, 2, prompt, lora=(Lora("plans.gguf"),)) == Reuse()


def test_the_cause_is_what_happened_to_the_tokens() -> None:
    history, prompt = PromptHistory(), tokens((1, 161))
    assert enter(history, 1, prompt) == Reuse()
    assert enter(history, 2, prompt) == Reuse(160, {"too short": 160}), "the first one is still computing them"
    history.leave(2, 0)
    history.leave(1, 64)
    assert enter(history, 3, prompt) == Reuse(160, {"evicted": 64, "cancelled": 96})
    history.leave(3, 161)
    history.forget_cells()
    assert enter(history, 4, prompt, cached=32) == Reuse(160, {"layout changed": 128})


@pytest.mark.parametrize("obstacle", ["too short", "model cannot share"])
def test_what_the_cache_holds_and_cannot_share_was_not_evicted(obstacle: LossCause) -> None:
    history, prompt = PromptHistory(), tokens((1, 161))
    answer(history, 1, prompt)
    reuse = enter(history, 2, prompt, cached=32, held=96, obstacle=obstacle)
    assert reuse == Reuse(160, {obstacle: 64, "evicted": 64})


def test_a_text_behind_another_one_cannot_be_shared() -> None:
    history, document = PromptHistory(IS_CONTROL), ((END, 1), (3, 100))
    answer(history, 1, tokens((END, 1), (1, 40), *document, (5, 20)))
    other = tokens((END, 1), (2, 40), *document, (6, 20))
    assert enter(history, 2, other, cached=1) == Reuse(97, {"prompt differs": 96})
    history.leave(2, len(other))
    again = tokens((END, 1), (2, 40), *document, (7, 20))
    assert enter(history, 3, again, cached=142) == Reuse(142), "now it is known behind this text, too"


def test_a_short_text_that_comes_again_is_no_loss() -> None:
    history, greeting = PromptHistory(IS_CONTROL), ((END, 1), (3, LEAST - 1), (END, 1))
    answer(history, 1, tokens((END, 1), (1, 40), *greeting))
    assert enter(history, 2, tokens((END, 1), (2, 40), *greeting), cached=1) == Reuse(1)


def test_a_text_that_comes_twice_in_one_prompt_is_no_loss() -> None:
    history, text = PromptHistory(IS_CONTROL), ((END, 1), (3, 100))
    assert enter(history, 1, tokens((END, 1), (1, 40), *text, *text)) == Reuse()


def test_what_was_restored_from_disk_is_expected() -> None:
    history = PromptHistory()
    history.note(tokens((1, 64)))
    assert enter(history, 1, tokens((1, 64), (2, 9)), cached=64) == Reuse(64)


def test_the_oldest_prompts_are_forgotten_from_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_history, "MOST_BLOCKS", 6)
    history, prompt = PromptHistory(), tokens((1, 65))
    answer(history, 1, prompt)
    answer(history, 2, tokens((2, 65)))
    assert enter(history, 3, prompt, cached=0) == Reuse(32, {"evicted": 32})
