"""Verification against a 'model' whose logits are a function of the context."""

import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.worker.sampling import Logits, Sampler, distribution, verify_drafts

VOCABULARY = 5
DRAWS = 6000


def model(context: Sequence[int]) -> Logits:
    return logits_after(tuple(context))


@lru_cache(maxsize=4096)
def logits_after(context: tuple[int, ...]) -> Logits:
    seed = zlib.crc32(np.array(context, np.int32).tobytes())
    logits = (np.random.default_rng(seed).normal(size=VOCABULARY) * 1.5).astype(np.float32)
    logits.setflags(write=False)
    return logits


def plain(sampler: Sampler, prompt: list[int], length: int) -> list[int]:
    held = list(prompt)
    while len(held) < len(prompt) + length:
        held.append(sampler.pick(model(held)))
    return held[len(prompt) :]


def step(sampler: Sampler, held: list[int], drafts: list[int]) -> list[int]:
    """Return what one step adds: the target computes all rows, then they are verified."""
    rows = [model(held + drafts[:count]) for count in range(len(drafts) + 1)]
    return list(verify_drafts(np.array(drafts, np.int32), lambda row: sampler.pick(rows[row])))


def speculative(sampler: Sampler, prompt: list[int], length: int, drafts: Sequence[list[int]]) -> list[int]:
    held = list(prompt)
    steps = 0
    while len(held) < len(prompt) + length:
        held += step(sampler, held, drafts[steps % len(drafts)])
        steps += 1
    return held[len(prompt) : len(prompt) + length]


token = st.integers(0, VOCABULARY - 1)
any_drafts = st.lists(st.lists(token, max_size=6), min_size=1, max_size=5)


@given(st.lists(token, max_size=4), any_drafts)
def test_greedy_output_is_the_targets_own_whatever_is_drafted(prompt: list[int], drafts: list[list[int]]) -> None:
    greedy = Sampler(0.0, 1.0, 0)
    assert speculative(greedy, prompt, 12, drafts) == plain(greedy, prompt, 12)


@given(st.integers(0, 2**32), st.sampled_from([(0.7, 1.0), (1.0, 0.8), (2.0, 0.95)]), any_drafts)
def test_a_seed_gives_the_same_text_with_and_without_drafts(
    seed: int, settings: tuple[float, float], drafts: list[list[int]]
) -> None:
    assert speculative(Sampler(*settings, seed), [1], 12, drafts) == plain(Sampler(*settings, seed), [1], 12)


@given(st.lists(token, max_size=4), st.integers(0, 8), st.integers(0, 8))
def test_right_drafts_are_all_taken_and_none_after_a_wrong_one(prompt: list[int], count: int, wrong: int) -> None:
    greedy = Sampler(0.0, 1.0, 0)
    own = plain(greedy, prompt, count + 1)
    drafts = own[:count]
    assert step(greedy, prompt, drafts) == own
    if wrong < count:
        drafts[wrong] = (drafts[wrong] + 1) % VOCABULARY
        assert step(greedy, prompt, drafts) == own[: wrong + 1]


def test_nothing_is_asked_for_that_is_not_taken() -> None:
    """A grammar moves on with every token, so the next row must not be chosen from before."""
    asked: list[int] = []

    def pick(row: int) -> int:
        asked.append(row)
        return 7

    tokens = verify_drafts(np.array([7, 7, 8, 7], np.int32), pick)
    assert (next(tokens), asked) == (7, [0])
    assert (next(tokens), asked) == (7, [0, 1])
    assert (list(tokens), asked) == ([7], [0, 1, 2])


# Statistics


def target(temperature: float, top_p: float) -> dict[tuple[int, int], float]:
    """Return the probability of every first two tokens after the prompt [3]."""

    def chances(context: list[int]) -> list[tuple[int, float]]:
        ids, weights = distribution(model(context), temperature, top_p)
        return list(zip(ids.tolist(), weights.tolist(), strict=True))

    return {(a, b): p * q for a, p in chances([3]) for b, q in chances([3, a])}


def chi_square(drawn: Sequence[tuple[int, ...]], chances: dict[tuple[int, int], float]) -> tuple[float, float]:
    """Return Pearson's statistic, rare outcomes pooled, and what it exceeds once in 10,000 times (Wilson & Hilferty
    1931)."""
    assert set(drawn) <= set(chances), "a token that the target never chooses"
    counts = {outcome: drawn.count(outcome) for outcome in chances}
    common = [outcome for outcome, chance in chances.items() if chance * len(drawn) >= 10]
    cells = [(counts[outcome], chances[outcome] * len(drawn)) for outcome in common]
    rest = len(drawn) - sum(count for count, _ in cells), len(drawn) - sum(share for _, share in cells)
    if rest[1] >= 10:
        cells.append(rest)
    freedom = len(cells) - 1
    assert freedom >= 2
    limit = freedom * (1 - 2 / (9 * freedom) + 3.719 * (2 / (9 * freedom)) ** 0.5) ** 3
    return sum((count - share) ** 2 / share for count, share in cells), limit


def draw(pair: Callable[[], list[int]]) -> list[tuple[int, ...]]:
    return [tuple(pair()[:2]) for _ in range(DRAWS)]


@pytest.mark.parametrize(
    ("order", "temperature", "top_p"),
    [
        ("likely", 1.0, 1.0),
        ("unlikely", 1.5, 0.85),
        pytest.param("mixed", 0.6, 1.0, marks=pytest.mark.slow),
        pytest.param("likely", 0.6, 1.0, marks=pytest.mark.slow),
        pytest.param("likely", 1.5, 0.85, marks=pytest.mark.slow),
        pytest.param("unlikely", 1.0, 1.0, marks=pytest.mark.slow),
        pytest.param("unlikely", 0.6, 1.0, marks=pytest.mark.slow),
        pytest.param("mixed", 1.0, 1.0, marks=pytest.mark.slow),
        pytest.param("mixed", 1.5, 0.85, marks=pytest.mark.slow),
    ],
)
def test_drafts_leave_the_distribution_as_it_is(temperature: float, top_p: float, order: str) -> None:
    ranked = np.argsort(-model([3])).tolist()
    first = {"likely": ranked[0], "unlikely": ranked[-1], "mixed": ranked[1]}[order]
    second = int(model([3, first]).argmin() if order == "unlikely" else model([3, first]).argmax())
    sampler = Sampler(temperature, top_p, 11)
    drawn = draw(lambda: speculative(sampler, [3], 2, [[first, second]]))
    statistic, limit = chi_square(drawn, target(temperature, top_p))
    assert statistic < limit


def test_the_statistic_sees_a_verifier_that_is_a_little_too_kind() -> None:
    sampler, random = Sampler(1.0, 1.0, 11), np.random.default_rng(5)
    draft = int(model([3]).argmax())

    def kind() -> list[int]:
        """Accept one draft in ten without looking."""
        held = [draft] if random.random() < 0.1 else [sampler.pick(model([3]))]
        return [*held, sampler.pick(model([3, *held]))]

    statistic, limit = chi_square(draw(kind), target(1.0, 1.0))
    assert statistic > limit
