"""Sampling: the same distributions as chains of llama.cpp's own samplers, and frequencies that follow from them."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tests.orchestrator.engine.llama_reference as lib
from orchestrator.engine.worker.sampling import (
    Candidates,
    Logits,
    Mirostat,
    Sampler,
    distribution,
    without_top_choices,
)
from orchestrator.registry.options import SamplingOptions

LOGITS = np.array([2.0, 1.0, 0.0, -1.0, -np.inf], dtype=np.float32)
NEVER = 1e-12
seeds = st.integers(0, 1 << 32)


def random_logits(seed: int, size: int) -> Logits:
    return np.random.default_rng(seed).normal(0, 4, size).astype(np.float32)


class LlamaChain:
    """A chain of llama.cpp's samplers."""

    def __init__(self, samplers: Sequence[Any]) -> None:
        self._chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        for sampler in samplers:
            lib.llama_sampler_chain_add(self._chain, sampler)

    def apply(self, logits: Logits) -> tuple[dict[int, float], int]:
        """Return the probabilities of the tokens that are left, and the one that was selected."""
        data = (lib.llama_token_data * len(logits))(*((n, float(one), 0.0) for n, one in enumerate(logits)))
        candidates = lib.llama_token_data_array(data=data, size=len(logits), selected=-1, sorted=False)
        lib.llama_sampler_apply(self._chain, ctypes.byref(candidates))
        left = {candidates.data[n].id: candidates.data[n].p for n in range(candidates.size)}
        return left, candidates.data[candidates.selected].id

    def close(self) -> None:
        lib.llama_sampler_free(self._chain)


def assert_same(ours: Candidates, theirs: dict[int, float], never: float = NEVER) -> None:
    """The sums of single and of double precision may tip the last token, whose share is then small.

    Tokens that are never drawn do not count.
    """
    mine = {token: share for token, share in zip(*map(np.ndarray.tolist, ours), strict=True) if share > never}
    theirs = {token: share for token, share in theirs.items() if share > never}
    differing = mine.keys() ^ theirs.keys()
    assert len(differing) <= 1
    lost = sum(mine.get(token, theirs.get(token, 0.0)) for token in differing)
    for token in mine.keys() & theirs.keys():
        assert mine[token] == pytest.approx(theirs[token], rel=1e-3 + 2 * lost, abs=1e-6)


@given(
    seeds,
    st.integers(2, 400),
    st.floats(0.3, 3),
    st.sampled_from([0, 1, 5, 40]),
    st.sampled_from([1.0, 0.9, 0.5]),
    st.sampled_from([1.0, 0.95, 0.3]),
    st.sampled_from([0.0, 0.05, 0.5]),
)
def test_what_is_left_is_what_llama_cpp_leaves(
    seed: int, size: int, temperature: float, top_k: int, typical_p: float, top_p: float, min_p: float
) -> None:
    logits = random_logits(seed, size)
    chain = LlamaChain(
        [
            lib.llama_sampler_init_temp(temperature),
            lib.llama_sampler_init_top_k(top_k),
            lib.llama_sampler_init_typical(typical_p, 0),
            lib.llama_sampler_init_top_p(top_p, 0),
            lib.llama_sampler_init_min_p(min_p, 0),
            lib.llama_sampler_init_dist(1),
        ]
    )
    theirs, _ = chain.apply(logits)
    chain.close()
    options = SamplingOptions(top_k=top_k, typical_p=typical_p, min_p=min_p)
    ours = distribution(logits, temperature, top_p, options)
    assert_same(ours, theirs)


@pytest.mark.parametrize("version", [1, 2])
@given(seed=seeds, tau=st.floats(0.5, 8), eta=st.floats(0.05, 0.5), temperature=st.floats(0.5, 1.5))
def test_mirostat_is_llama_cpp_s(version: int, seed: int, tau: float, eta: float, temperature: float) -> None:
    size = 300
    sampler = (
        lib.llama_sampler_init_mirostat(size, seed, tau, eta, 100)
        if version == 1
        else lib.llama_sampler_init_mirostat_v2(seed, tau, eta)
    )
    chain = LlamaChain([lib.llama_sampler_init_temp(temperature), sampler])
    ours = Mirostat(SamplingOptions(mirostat=version, mirostat_tau=tau, mirostat_eta=eta), size)  # type: ignore[arg-type]
    for step in range(12):
        logits = random_logits(seed + step, size)
        theirs, chosen = chain.apply(logits)
        ids, chances = ours.candidates(logits, temperature)
        if version == 1 and len(theirs) == 1 and len(ids) == len(distribution(logits, temperature)[0]):
            break  # llama.cpp's count of tokens has overflowed
        assert_same((ids, chances), theirs)
        if chosen not in ids:
            break
        ours.observe(theirs[chosen])
    chain.close()


@given(seeds, st.integers(2, 60), st.floats(0.3, 3), st.floats(0.001, 0.6))
def test_xtc_leaves_what_llama_cpp_leaves(seed: int, size: int, temperature: float, threshold: float) -> None:
    logits = random_logits(seed, size)
    samplers = [lib.llama_sampler_init_temp(temperature), lib.llama_sampler_init_xtc(1.0, threshold, 0, 1)]
    chain = LlamaChain([*samplers, lib.llama_sampler_init_dist(1)])
    theirs, _ = chain.apply(logits)
    chain.close()
    ours = distribution(logits, temperature)
    nearest = min(float(np.abs(ours[1] / threshold - 1).min()), abs(threshold - 0.5))
    assume(nearest > 1e-4)  # llama.cpp computes in single precision
    never = NEVER / threshold  # what is left when nearly all is left out weighs so much more
    assert_same(without_top_choices(ours, threshold), theirs, never)


def test_xtc_is_used_as_often_as_it_says() -> None:
    taken = {}
    for probability in (0.0, 0.5, 1.0):
        sampler = Sampler(1.0, 1.0, 7, SamplingOptions(xtc_probability=probability, xtc_threshold=0.2))
        taken[probability] = np.mean([sampler.pick(LOGITS) == 0 for _ in range(2000)])
    share = float(np.exp(2.0) / np.exp(LOGITS).sum())
    assert taken == pytest.approx({0.0: share, 0.5: share / 2, 1.0: 0.0}, abs=0.04)


def test_greedy_takes_the_most_likely() -> None:
    assert Sampler(0.0, 1.0, 0).pick(LOGITS) == 0
    assert Sampler(0.0, 1.0, 0, SamplingOptions(mirostat=2)).pick(LOGITS) == 0


@pytest.mark.parametrize(
    "options", [SamplingOptions(), SamplingOptions(top_k=3), SamplingOptions(min_p=0.2), SamplingOptions(typical_p=0.7)]
)
def test_frequencies_follow_the_probabilities(options: SamplingOptions) -> None:
    sampler = Sampler(0.8, 1.0, 7, options)
    counts = np.bincount([sampler.pick(LOGITS) for _ in range(4000)], minlength=5) / 4000
    ids, chances = distribution(LOGITS, 0.8, 1.0, options)
    expected = np.zeros(5)
    expected[ids] = chances
    assert np.abs(counts - expected).max() < 0.03
    assert counts[4] == 0


def test_top_p_keeps_the_smallest_set_that_holds_it() -> None:
    p = np.exp(LOGITS[:4]) / np.exp(LOGITS[:4]).sum()
    for top_p, size in ((0.1, 1), (float(p[0]) + 0.01, 2), (float(p[:2].sum()) + 0.01, 3), (1.0, 4)):
        ids, weights = distribution(LOGITS, 1.0, top_p)
        assert sorted(ids) == list(range(size))
        assert abs(weights.sum() - 1) < 1e-9


@given(seeds, st.floats(0.01, 0.999), st.floats(0.1, 3.0), st.integers(1, 2000))
def test_top_p_is_what_sorting_all_tokens_gives(seed: int, top_p: float, temperature: float, size: int) -> None:
    logits = random_logits(seed, size)
    shares = np.exp((logits - logits.max()) / np.float64(temperature))
    order = np.argsort(-shares, kind="stable")
    sums = np.cumsum(shares[order]) / shares.sum()
    count = int(np.searchsorted(sums, top_p)) + 1
    ids, weights = distribution(logits, temperature, top_p)
    assert abs(len(ids) - count) <= 1  # the last bits of a sum may tip the last one
    assert ids.tolist() == order[: len(ids)].tolist()
    assert abs(weights.sum() - 1) < 1e-9


def test_extreme_temperatures_do_not_break() -> None:
    assert Sampler(1e-5, 1.0, 0).pick(LOGITS) == 0
    assert Sampler(100.0, 1.0, 0).pick(LOGITS) in range(4)
    for version in (1, 2):
        options = SamplingOptions(mirostat=version, mirostat_tau=100.0)
        assert Sampler(100.0, 1.0, 0, options, 5).pick(LOGITS) in range(4)
        assert Sampler(1.0, 1.0, 0, options, 5).pick(np.zeros(5, np.float32)) in range(5)


def test_the_same_seed_gives_the_same_choices() -> None:
    first, second, other = (Sampler(1.0, 0.9, seed) for seed in (5, 5, 6))
    flat = np.zeros(64, np.float32)
    picks = [[s.pick(flat) for _ in range(20)] for s in (first, second, other)]
    assert picks[0] == picks[1] != picks[2]


def test_mirostat_learns_only_from_tokens_that_were_taken() -> None:
    options = SamplingOptions(mirostat=2, mirostat_tau=1.0, mirostat_eta=1.0)
    refused, taken, fresh = (Sampler(1.0, 1.0, 3, options, 64) for _ in range(3))
    logits = random_logits(5, 64)
    for _ in range(6):
        refused.accept(-2 if (token := refused.pick(logits)) >= 0 else token)
        taken.accept(taken.pick(logits))
        fresh.pick(logits)
    following = [[one.pick(logits) for _ in range(20)] for one in (refused, taken, fresh)]
    assert following[0] == following[2] != following[1]
