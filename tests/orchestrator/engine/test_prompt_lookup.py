import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engine.speculation.prompt_lookup import PromptLookup

text = st.lists(st.integers(0, 3), max_size=60)


def tokens(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def expected(held: list[int], longest: int, k: int) -> list[int]:
    """Look at every place in turn: the longest n-gram first, then the most recent place."""
    for length in range(longest, min(2, longest) - 1, -1):
        for end in range(len(held) - 1, length - 1, -1):
            if held[end - length : end] == held[len(held) - length :]:
                grown = list(held)
                for _ in range(k):
                    grown.append(grown[len(grown) - (len(held) - end)])
                return grown[len(held) :]
    return []


@settings(deadline=None)
@given(text, text, st.integers(1, 5), st.integers(0, 9))
def test_proposals_follow_the_longest_and_then_the_latest_match(
    prompt: list[int], output: list[int], longest: int, k: int
) -> None:
    lookup = PromptLookup(tokens(prompt), longest)
    held = list(prompt)
    assert lookup.propose(k).tolist() == expected(held, longest, k)
    for token in output:
        lookup.append(token)
        held.append(token)
        assert lookup.propose(k).tolist() == expected(held, longest, k)


def test_proposals_are_tokens() -> None:
    proposed = PromptLookup(tokens([5, 6, 7, 8, 5, 6]), 3).propose(2)
    assert proposed.dtype == np.int32
    assert proposed.tolist() == [7, 8]
    assert PromptLookup(tokens([]), 3).propose(4).dtype == np.int32


def test_a_repetition_is_proposed_for_as_long_as_is_asked() -> None:
    assert PromptLookup(tokens([9, 1, 2, 1, 2]), 2).propose(5).tolist() == [1, 2, 1, 2, 1]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(("end", "proposed"), [([450, 451], [452]), ([900, 901], [])])
def test_only_so_many_n_grams_are_remembered(at_once: bool, end: list[int], proposed: list[int]) -> None:
    text = [900, 901, 902, *range(500), *end]
    lookup = PromptLookup(tokens(text if at_once else []), 3, window=100)
    for token in [] if at_once else text:
        lookup.append(token)
    assert lookup.propose(1).tolist() == proposed, "what is too old is forgotten"


def test_an_n_gram_that_keeps_coming_is_not_forgotten() -> None:
    lookup = PromptLookup(tokens([1, 2, 3]), 2, window=10)
    for token in range(100, 200):
        for following in (token, 1, 2):
            lookup.append(following)
        assert lookup.propose(1).tolist() == [3]
        lookup.append(3)
