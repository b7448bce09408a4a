import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.worker.sampling import Sampler, distribution

LOGITS = np.array([2.0, 1.0, 0.0, -1.0, -np.inf], dtype=np.float32)


def test_greedy_takes_the_most_likely() -> None:
    assert Sampler(0.0, 1.0, 0).pick(LOGITS) == 0


def test_frequencies_follow_the_probabilities() -> None:
    sampler = Sampler(0.8, 1.0, 7)
    counts = np.bincount([sampler.pick(LOGITS) for _ in range(4000)], minlength=5) / 4000
    weights = np.exp(LOGITS.astype(float) / 0.8)
    assert np.abs(counts - weights / weights.sum()).max() < 0.03
    assert counts[4] == 0


def test_top_p_keeps_the_smallest_set_that_holds_it() -> None:
    p = np.exp(LOGITS[:4]) / np.exp(LOGITS[:4]).sum()
    for top_p, size in ((0.1, 1), (float(p[0]) + 0.01, 2), (float(p[:2].sum()) + 0.01, 3), (1.0, 4)):
        ids, weights = distribution(LOGITS, 1.0, top_p)
        assert sorted(ids) == list(range(size))
        assert abs(weights.sum() - 1) < 1e-9


@given(st.integers(0, 1 << 32), st.floats(0.01, 0.999), st.floats(0.1, 3.0), st.integers(1, 2000))
def test_top_p_is_what_sorting_all_tokens_gives(seed: int, top_p: float, temperature: float, size: int) -> None:
    logits = np.random.default_rng(seed).normal(0, 4, size).astype(np.float32)
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


def test_the_same_seed_gives_the_same_choices() -> None:
    first, second, other = (Sampler(1.0, 0.9, seed) for seed in (5, 5, 6))
    flat = np.zeros(64, np.float32)
    picks = [[s.pick(flat) for _ in range(20)] for s in (first, second, other)]
    assert picks[0] == picks[1] != picks[2]
