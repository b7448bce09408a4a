"""Choose a token from logits. Each sequence has random numbers of its own, so that they do not depend on the batch."""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32]
"""A number for each token of the vocabulary."""

_NEGLIGIBLE = 30.0
"""Tokens whose logits are this much below the largest, in units of the temperature, are dropped: their probability is
below 1e-13."""


def distribution(
    logits: Logits, temperature: float, top_p: float
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return token ids and their probabilities at a temperature above 0, both of shape (kept,).

    With `top_p` below 1 only the smallest set of tokens whose probabilities come to that is kept: nucleus sampling
    (Holtzman et al. 2020, section 3.1).
    """
    best = logits.max()
    ids = np.flatnonzero(logits >= best - _NEGLIGIBLE * temperature)
    weights = np.exp((logits[ids].astype(np.float64) - float(best)) / temperature)
    if top_p < 1:
        # Tokens that weigh less than this come to less than is cut off. Sorting them too would take far longer.
        total = weights.sum()
        heavy = np.flatnonzero(weights >= (1 - top_p) * total / len(weights))
        order = heavy[np.argsort(-weights[heavy], kind="stable")]
        order = order[: int(np.searchsorted(np.cumsum(weights[order]), top_p * total)) + 1]
        ids, weights = ids[order], weights[order]
    return ids, weights / weights.sum()


class Sampler:
    """Chooses the tokens of one sequence: the most likely ones at temperature 0, otherwise random ones from `seed`."""

    def __init__(self, temperature: float, top_p: float, seed: int) -> None:
        # Below this, the division overflows and the result is the greedy one anyway.
        self.greedy = temperature < 1e-6
        self._temperature = temperature
        self._top_p = top_p
        self._random = None if self.greedy else np.random.Generator(np.random.PCG64(seed))  # takes long to make

    def pick(self, logits: Logits) -> int:
        """Return a token. The logits are finite or minus infinity, and at least one of them is finite."""
        if self._random is None:
            return int(logits.argmax())
        ids, weights = distribution(logits, self._temperature, self._top_p)
        at = int(np.searchsorted(np.cumsum(weights), self._random.random(), side="right"))
        return int(ids[min(at, len(ids) - 1)])


def verify_drafts(drafts: npt.NDArray[np.int32], pick: Callable[[int], int]) -> Iterator[int]:
    """Yield the tokens that a step adds: the drafts up to the first that is refused, and one token of the target.

    `pick(row)` chooses from the target's logits after the first `row` drafts, exactly as without drafts. It is called
    for one row after the other, and only after the token before was taken, so that a grammar may move on in between;
    whoever has enough stops asking.

    At temperature 0 the result is the target's own. Above, it has the target's distribution. Speculative sampling
    (Leviathan et al. 2023; Chen et al. 2023) accepts a draft x with probability min(1, p(x) / q(x)), and otherwise
    draws from max(0, p - q), normalised. These drafts are not random, so q(x) is 1: x is accepted with probability
    p(x), and otherwise the token comes from p without x. To draw from p and see whether it is x does just that, and
    takes one random number a token, so that a seed gives the same text with and without drafts.
    """
    for row, draft in enumerate(drafts.tolist()):
        token = pick(row)
        yield token
        if token != draft:
            return
    yield pick(len(drafts))
