"""Choose a token from logits. Each sequence has its own random numbers, so they do not depend on the batch."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from orchestrator.registry.options import DEFAULT_SAMPLING, SamplingOptions

Logits = npt.NDArray[np.float32]  # of shape (vocabulary,)
Candidates = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]  # token ids and their probabilities

# Tokens whose logits are this much below the largest, in units of the temperature, are dropped: their probability is
# below 1e-13.
_NEGLIGIBLE = 30.0
_NEARLY_ZERO = 1e-6
# Above this threshold XTC removes nothing, as in llama.cpp: no two tokens can be that likely.
_MOST_XTC = 0.5
# Mirostat 1 estimates the exponent of Zipf's law from this many most likely tokens, as in llama.cpp.
_MIROSTAT_TOKENS = 100


def distribution(
    logits: Logits, temperature: float, top_p: float = 1.0, options: SamplingOptions = DEFAULT_SAMPLING
) -> Candidates:
    """Return the tokens that may be sampled and their probabilities, at a temperature above 0."""
    # The order is llama.cpp's, except that the temperature comes first, as in OpenAI's API, vLLM and transformers.
    best = logits.max()
    ids = np.flatnonzero(logits >= best - _NEGLIGIBLE * temperature)
    weights = np.exp((logits[ids].astype(np.float64) - float(best)) / temperature)
    if 0 < options.top_k < len(ids):
        ids, weights = _most_likely(ids, weights, options.top_k)
    if options.typical_p < 1:
        ids, weights = _most_typical(ids, weights, options.typical_p)
    if top_p < 1:
        # Nucleus sampling (Holtzman et al. 2020, section 3.1). Lighter tokens together weigh less than what is cut off,
        # and sorting them too would take far longer.
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
    first = np.argpartition(-weights, count - 1)[:count]
    order = first[np.argsort(-weights[first], kind="stable")]
    return ids[order], weights[order]


def _most_typical(ids: npt.NDArray[np.int64], weights: npt.NDArray[np.float64], share: float) -> Candidates:
    # Locally typical sampling (Meister et al. 2023, section 4): tokens whose surprise is nearest to the entropy.
    chances = weights / weights.sum()
    surprises = -np.log(chances)
    order = np.argsort(np.abs(surprises - (chances * surprises).sum()), kind="stable")
    order = order[: int(np.searchsorted(np.cumsum(chances[order]), share, side="right")) + 1]
    return ids[order], weights[order]


def without_top_choices(candidates: Candidates, threshold: float) -> Candidates:
    """Apply llama.cpp's XTC: remove the tokens that are at least so likely, but for the last of them."""
    ids, chances = candidates
    likely = np.flatnonzero(chances >= threshold)
    if threshold > _MOST_XTC or len(likely) < 2:
        return candidates
    order = likely[np.argsort(-chances[likely], kind="stable")]
    mask = np.ones(len(ids), np.bool_)
    mask[order[:-1]] = False
    ids, chances = ids[mask], chances[mask]
    return ids, chances / chances.sum()


class Mirostat:
    """Mirostat (Basu et al. 2021, algorithms 1 and 2): keeps the surprise of the sampled tokens near a target."""

    def __init__(self, options: SamplingOptions, size: int) -> None:
        self._options = options
        self._size = size
        self.most_surprise = 2 * options.mirostat_tau  # mu, in bits

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
        size = min(_MIROSTAT_TOKENS, len(logits))
        first = np.sort(-np.partition(-logits, size - 1)[:size].astype(np.float64))[::-1]
        first = first[np.isfinite(first)] / temperature
        if len(first) < 2:
            return len(first)
        # Equation 30 of the paper: the exponent of Zipf's law, estimated from the most likely tokens.
        ranks = np.arange(1, len(first))
        steps = np.log((ranks + 1) / ranks)
        exponent = float((steps * (first[:-1] - first[1:])).sum() / (steps * steps).sum())
        excess = exponent - 1
        near_one = abs(excess) < _NEARLY_ZERO
        scale = 1 / math.log(self._size) if near_one else excess / (1 - self._size**-excess)
        # So many tokens have at most the surprise mu if they follow this law.
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
        # Below this, the division overflows and the result is the greedy one anyway.
        self.greedy = temperature < 1e-6
        self._temperature = temperature
        self._top_p = top_p
        self._options = options
        self._uses_xtc = options.xtc_probability > 0 and options.xtc_threshold <= _MOST_XTC
        self._random = None if self.greedy else np.random.Generator(np.random.PCG64(seed))  # takes long to make
        # Only Mirostat needs the `size` of the vocabulary.
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
        """Record that a token was taken. A token that was picked but refused by a grammar changes nothing."""
        if self._mirostat is not None and token == self._picked[0]:
            self._mirostat.observe(self._picked[1])


def verify_drafts(drafts: npt.NDArray[np.int32], pick: Callable[[int], int]) -> Iterator[int]:
    """Yield the tokens that a step adds: the drafts up to the first that is refused, and one token of the target.

    `pick(row)` chooses from the target's logits after the first `row` drafts, exactly as without drafts.
    """
    # Speculative sampling (Leviathan et al. 2023; Chen et al. 2023) accepts a draft x with probability min(1, p(x) /
    # q(x)), and otherwise draws from max(0, p - q), normalised. These drafts are not random, so q(x) is 1: x is
    # accepted with probability p(x), and otherwise the token comes from p without x. Drawing from p and comparing
    # with x does just that, with as many random numbers as without drafts, so a seed gives the same text with and
    # without them. p is taken after biases, penalties, temperature and truncation.
    for row, draft in enumerate(drafts.tolist()):
        # only after the token before was taken, so that a grammar may advance in between
        token = pick(row)
        yield token
        if token != draft:
            return
    yield pick(len(drafts))
