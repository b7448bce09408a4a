"""Choose a token from logits. Each sequence has random numbers of its own, so that they do not depend on the batch."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from registry.options import DEFAULT_SAMPLING, SamplingOptions

Logits = npt.NDArray[np.float32]
"""A number for each token of the vocabulary."""
Candidates = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]
"""The ids of tokens and their probabilities, both of shape (kept,)."""

_NEGLIGIBLE = 30.0
"""Tokens whose logits are this much below the largest, in units of the temperature, are dropped: their probability is
below 1e-13."""
_NEARLY_ZERO = 1e-6
_MOST_XTC = 0.5
"""Above this threshold no two tokens can be likely enough, so that XTC leaves none out, as in llama.cpp."""
_MIROSTAT_TOKENS = 100
"""From how many of the most likely tokens Mirostat 1 estimates the exponent of Zipf's law, as in llama.cpp."""


def distribution(
    logits: Logits, temperature: float, top_p: float = 1.0, options: SamplingOptions = DEFAULT_SAMPLING
) -> Candidates:
    """Return the tokens that may be sampled and their probabilities, at a temperature above 0.

    After the temperature, `top_k`, `typical_p`, `top_p` and `min_p` follow in this order, each among the tokens that
    are left: llama.cpp's order, but for the temperature, which comes first as in OpenAI's API, vLLM and transformers.
    With `top_p` below 1 the smallest set of tokens whose probabilities come to that is kept: nucleus sampling
    (Holtzman et al. 2020, section 3.1).
    """
    best = logits.max()
    ids = np.flatnonzero(logits >= best - _NEGLIGIBLE * temperature)
    weights = np.exp((logits[ids].astype(np.float64) - float(best)) / temperature)
    if 0 < options.top_k < len(ids):
        ids, weights = _most_likely(ids, weights, options.top_k)
    if options.typical_p < 1:
        ids, weights = _most_typical(ids, weights, options.typical_p)
    if top_p < 1:
        # Tokens that weigh less than this come to less than is cut off. Sorting them too would take far longer.
        total = weights.sum()
        heavy = np.flatnonzero(weights >= (1 - top_p) * total / len(weights))
        order = heavy[np.argsort(-weights[heavy], kind="stable")]
        order = order[: int(np.searchsorted(np.cumsum(weights[order]), top_p * total)) + 1]
        ids, weights = ids[order], weights[order]
    if options.min_p > 0:
        likely = weights >= options.min_p * weights.max()
        ids, weights = ids[likely], weights[likely]
    return ids, weights / weights.sum()


def _most_likely(ids: npt.NDArray[np.int64], weights: npt.NDArray[np.float64], count: int) -> Candidates:
    """Return the `count` tokens that weigh most, the heaviest first."""
    first = np.argpartition(-weights, count - 1)[:count]
    order = first[np.argsort(-weights[first], kind="stable")]
    return ids[order], weights[order]


def _most_typical(ids: npt.NDArray[np.int64], weights: npt.NDArray[np.float64], share: float) -> Candidates:
    """Return the fewest tokens that come to this share, of those first whose surprise is nearest to the entropy.

    Locally typical sampling: Meister et al. 2023, section 4.
    """
    chances = weights / weights.sum()
    surprises = -np.log(chances)
    order = np.argsort(np.abs(surprises - (chances * surprises).sum()), kind="stable")
    order = order[: int(np.searchsorted(np.cumsum(chances[order]), share, side="right")) + 1]
    return ids[order], weights[order]


def without_top_choices(candidates: Candidates, threshold: float) -> Candidates:
    """Return the tokens without those that are at least so likely but for the last of them, as llama.cpp's XTC does."""
    ids, chances = candidates
    likely = np.flatnonzero(chances >= threshold)
    if threshold > _MOST_XTC or len(likely) < 2:
        return candidates
    order = likely[np.argsort(-chances[likely], kind="stable")]
    kept = np.ones(len(ids), np.bool_)
    kept[order[:-1]] = False
    ids, chances = ids[kept], chances[kept]
    return ids, chances / chances.sum()


class Mirostat:
    """Mirostat (Basu et al. 2021, algorithms 1 and 2): keeps the surprise of the sampled tokens near to a target.

    `options` say which version, the target and how fast it is followed. The vocabulary has `size` tokens.
    """

    def __init__(self, options: SamplingOptions, size: int) -> None:
        self._options = options
        self._size = size
        self.most_surprise = 2 * options.mirostat_tau
        """How many bits of surprise a token may have, at most: mu."""

    def candidates(self, logits: Logits, temperature: float) -> Candidates:
        """Return the tokens that may be sampled next and their probabilities, the most likely first."""
        ids, chances = distribution(logits, temperature)
        order = np.argsort(-chances, kind="stable")
        ids, chances = ids[order], chances[order]
        if self._options.mirostat == 1:
            count = self._count_by_law(logits, temperature)
        else:
            count = int(np.count_nonzero(-np.log2(chances) <= self.most_surprise))
        count = max(1, min(count, len(chances)))
        ids, chances = ids[:count], chances[:count]
        return ids, chances / chances.sum()

    def _count_by_law(self, logits: Logits, temperature: float) -> int:
        """Return how many tokens have at most the surprise mu if their probabilities follow Zipf's law.

        The exponent of the law is estimated from the most likely tokens (equation 30 of the paper).
        """
        size = min(_MIROSTAT_TOKENS, len(logits))
        first = np.sort(-np.partition(-logits, size - 1)[:size].astype(np.float64))[::-1]
        first = first[np.isfinite(first)] / temperature
        if len(first) < 2:
            return len(first)
        ranks = np.arange(1, len(first))
        steps = np.log((ranks + 1) / ranks)
        exponent = float((steps * (first[:-1] - first[1:])).sum() / (steps * steps).sum())
        excess = exponent - 1
        near_one = abs(excess) < _NEARLY_ZERO
        scale = 1 / math.log(self._size) if near_one else excess / (1 - self._size**-excess)
        count = (math.log(scale) + self.most_surprise * math.log(2)) / max(exponent, _NEARLY_ZERO)
        return int(math.exp(min(count, _NEGLIGIBLE)))

    def observe(self, chance: float) -> None:
        """Learn that a token was taken which had this probability among the candidates."""
        self.most_surprise -= self._options.mirostat_eta * (-math.log2(chance) - self._options.mirostat_tau)


class Sampler:
    """Chooses the tokens of one sequence: the most likely ones at temperature 0, otherwise random ones from `seed`."""

    def __init__(
        self, temperature: float, top_p: float, seed: int, options: SamplingOptions = DEFAULT_SAMPLING, size: int = 0
    ) -> None:
        """The vocabulary has `size` tokens, which only Mirostat has to know."""
        # Below this, the division overflows and the result is the greedy one anyway.
        self.greedy = temperature < 1e-6
        self._temperature = temperature
        self._top_p = top_p
        self._options = options
        self._uses_xtc = options.xtc_probability > 0 and options.xtc_threshold <= _MOST_XTC
        self._random = None if self.greedy else np.random.Generator(np.random.PCG64(seed))  # takes long to make
        self._mirostat = Mirostat(options, size) if options.mirostat and not self.greedy else None
        self._picked = (-1, 1.0)

    def pick(self, logits: Logits) -> int:
        """Return a token. The logits are finite or minus infinity, and at least one of them is finite."""
        if self._random is None:
            return int(logits.argmax())
        if self._mirostat is None:
            ids, weights = distribution(logits, self._temperature, self._top_p, self._options)
            if self._uses_xtc and self._random.random() < self._options.xtc_probability:
                ids, weights = without_top_choices((ids, weights), self._options.xtc_threshold)
        else:
            ids, weights = self._mirostat.candidates(logits, self._temperature)
        at = int(np.searchsorted(np.cumsum(weights), self._random.random(), side="right"))
        at = min(at, len(ids) - 1)
        self._picked = (int(ids[at]), float(weights[at]))
        return self._picked[0]

    def accept(self, token: int) -> None:
        """Note that a token was taken. What was picked and not taken, as a grammar refused it, changes nothing."""
        if self._mirostat is not None and token == self._picked[0]:
            self._mirostat.observe(self._picked[1])


def verify_drafts(drafts: npt.NDArray[np.int32], pick: Callable[[int], int]) -> Iterator[int]:
    """Yield the tokens that a step adds: the drafts up to the first that is refused, and one token of the target.

    `pick(row)` chooses from the target's logits after the first `row` drafts, exactly as without drafts. It is called
    for one row after the other, and only after the token before was taken, so that a grammar may move on in between;
    whoever has enough stops asking.

    At temperature 0 the result is the target's own. Above, it has the target's distribution. Speculative sampling
    (Leviathan et al. 2023; Chen et al. 2023) accepts a draft x with probability min(1, p(x) / q(x)), and otherwise
    draws from max(0, p - q), normalised. These drafts are not random, so q(x) is 1: x is accepted with probability
    p(x), and otherwise the token comes from p without x. To draw from p and see whether it is x does just that, and
    takes as many random numbers a token as without drafts, so that a seed gives the same text with and without them. p
    is what biases, penalties, temperature and truncation have left of the target's distribution, after the tokens taken
    so far.
    """
    for row, draft in enumerate(drafts.tolist()):
        token = pick(row)
        yield token
        if token != draft:
            return
    yield pick(len(drafts))
