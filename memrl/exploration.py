"""Draw actions so that the probability of each draw is known exactly, and keep dear actions within a budget."""

from bisect import bisect_left, insort
from collections import deque
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_CORRECTED_OVER: Final = 200
"""Over how many choices a budget makes up for what it used too much or too little."""

_NODE_COUNT: Final = 100
_NODES: Final = np.array([NormalDist().inv_cdf((node + 0.5) / _NODE_COUNT) for node in range(_NODE_COUNT)])
"""The points of the quadrature in `best_probabilities`, in standard deviations. Between two of them lies the same
probability, so that beside a value that is known almost exactly the error is at most half of that."""

_CDF_STEPS: Final = 1 << 10
"""How many steps the table of the normal distribution function has for each standard deviation."""
_CDF_LIMIT: Final = 8
_CDF: Final = np.array(
    [NormalDist().cdf(step / _CDF_STEPS) for step in range(-_CDF_LIMIT * _CDF_STEPS, _CDF_LIMIT * _CDF_STEPS + 1)]
)

_SURE: Final = 6.0
"""From so many standard deviations on a value counts as certainly lower; the error is at most 1e-9."""


def epsilon_greedy(best: int, count: int, epsilon: float) -> Floats:
    """Return the probability of each of `count` actions: the best one, but any one with `epsilon`.

    Sutton & Barto, Reinforcement learning, 2.2.
    """
    probabilities = np.full(count, epsilon / count)
    probabilities[best] += 1.0 - epsilon
    return probabilities


def best_probabilities(means: Floats, errors: Floats, margin: Floats | float = 0.0) -> Floats:
    """Return for each action how probable it is that its value is the highest: shape (actions,).

    Values are independent and normal with these means and standard errors. With a `margin` an action counts as the
    highest if it is at most so much below, and the probabilities may add up to more than 1. Thompson sampling (1933)
    draws one value for each action and takes the highest; drawing from these probabilities is the same, but
    says how probable the draw was. P(i) = integral of pdf_i(v) * product over j of cdf_j(v + margin) dv.
    """
    if len(means) == 1:
        return np.ones(1)
    errors = np.maximum(errors, 1e-9)
    values = means[:, None] + errors[:, None] * _NODES  # (action, node)
    below = _normal_cdf((values[:, :, None] + margin - means) / errors)  # (action, node, other)
    index = np.arange(len(means))
    below[index, :, index] = 1.0
    probabilities: Floats = below.prod(axis=2).mean(axis=1)
    return probabilities


def near_best(means: Floats, errors: Floats, place: int, margin: float) -> float:
    """Return how probable it is that no action's value is by more than `margin` above that of the one at `place`.

    It is that action's number of `best_probabilities`, computed alone.
    """
    errors = np.maximum(errors, 1e-9)
    values = means[place] + errors[place] * _NODES
    able = values[0] + margin - means < _SURE * errors  # the others are below at every node
    able[place] = False
    others = np.flatnonzero(able)
    below = _normal_cdf((values + margin - means[others, None]) / errors[others, None])  # (other, node)
    return float(below.prod(axis=0).mean())


def thompson(means: Floats, errors: Floats) -> Floats:
    """Return the probability with which Thompson sampling takes each action; they add up to 1."""
    probabilities = best_probabilities(means, errors)
    shares: Floats = probabilities / probabilities.sum()
    return shares


def draw(probabilities: Floats, rng: np.random.Generator) -> int:
    """Return the index of an action, drawn with these probabilities."""
    place = int(np.searchsorted(np.cumsum(probabilities), rng.random(), side="right"))
    return min(place, len(probabilities) - 1)


def _normal_cdf(z: Floats) -> Floats:
    """Return the standard normal distribution function, from a table whose nearest entry is at most 2e-4 off."""
    places = np.minimum(np.maximum(z * _CDF_STEPS + (_CDF_LIMIT * _CDF_STEPS + 0.5), 0.0), len(_CDF) - 1.0)
    cdf: Floats = _CDF.take(places.astype(np.intp))
    return cdf


class Budget:
    """Keeps dear actions to a share of all choices, by a price that they have to be worth: a quantile of their gain."""

    def __init__(self, share: float, window: int = 2000) -> None:
        """Allow dear actions for a `share` of choices, from 0 to 1. The quantile is that of the last `window` gains."""
        self.share = share
        self._window = window
        self._gains: deque[float] = deque()
        self._sorted: list[float] = []
        self._choices = 0
        self._dear = 0

    @property
    def spent(self) -> bool:
        """Return whether one more dear action would be over the budget."""
        return self._dear + 1 > self.share * (self._choices + 1) + 1

    @property
    def price(self) -> float:
        """Return what a dear action has to gain at least: 0 or more.

        It is the quantile above which the gains of the allowed share lie. If more of the budget was used than should
        have been, or less, the quantile is the one of so much less or more.
        """
        if not self._sorted:
            return 0.0
        left = (self.share * self._choices - self._dear) / min(self._choices + 1, _CORRECTED_OVER)
        share = min(1.0, max(0.0, self.share + left))
        place = min(len(self._sorted) - 1, int((1.0 - share) * len(self._sorted)))
        return max(0.0, self._sorted[place])

    def note(self, gain: float, dear: bool) -> None:
        """Take in what a dear action would have gained in a choice, and whether one was taken."""
        self._choices += 1
        self._dear += dear
        self._gains.append(gain)
        insort(self._sorted, gain)
        if len(self._gains) > self._window:
            self._sorted.pop(bisect_left(self._sorted, self._gains.popleft()))
