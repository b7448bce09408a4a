"""Draw actions with exactly known probabilities, and keep dear actions within a budget."""

from bisect import bisect_left, insort
from collections import deque
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_CORRECTED_OVER: Final = 200  # choices over which a budget corrects its over- or underuse

_NODE_COUNT: Final = 100
# Quadrature points of `best_probabilities` in standard deviations, all equally probable: next to a value that is known
# almost exactly the error is at most 1 / (2 * _NODE_COUNT).
_NODES: Final = np.array([NormalDist().inv_cdf((node + 0.5) / _NODE_COUNT) for node in range(_NODE_COUNT)])

_CDF_STEPS: Final = 1 << 10  # table entries for each standard deviation
_CDF_LIMIT: Final = 8
_CDF: Final = np.array(
    [NormalDist().cdf(step / _CDF_STEPS) for step in range(-_CDF_LIMIT * _CDF_STEPS, _CDF_LIMIT * _CDF_STEPS + 1)]
)

_SURE: Final = 6.0  # standard deviations from which a value counts as certainly lower; the error is at most 1e-9


def epsilon_greedy(best: int, count: int, epsilon: float) -> Floats:
    """Return the probability of each of `count` actions: the best one, but any with `epsilon` (Sutton & Barto, 2.2)."""
    probabilities = np.full(count, epsilon / count)
    probabilities[best] += 1.0 - epsilon
    return probabilities


def best_probabilities(means: Floats, errors: Floats, margin: Floats | float = 0.0) -> Floats:
    """Return for each action the probability that its value is the highest, shape (actions,).

    Values are independent normals with these means and standard errors. An action within `margin` of the highest counts
    too, so the sum may exceed 1. P(i) = integral of pdf_i(v) * product over j of cdf_j(v + margin) dv: drawing from it
    is Thompson sampling (1933) with a known probability.
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
    """Return the probability that no value is more than `margin` above that of the action at `place`.

    The same as that entry of `best_probabilities`, computed alone.
    """
    errors = np.maximum(errors, 1e-9)
    values = means[place] + errors[place] * _NODES
    able = values[0] + margin - means < _SURE * errors  # the others are below at every node
    able[place] = False
    rivals = np.flatnonzero(able)
    below = _normal_cdf((values + margin - means[rivals, None]) / errors[rivals, None])  # (other, node)
    return float(below.prod(axis=0).mean())


def thompson(means: Floats, errors: Floats) -> Floats:
    """Return the probability that Thompson sampling takes each action; the sum is 1."""
    probabilities = best_probabilities(means, errors)
    shares: Floats = probabilities / probabilities.sum()
    return shares


def draw(probabilities: Floats, rng: np.random.Generator) -> int:
    """Return the index of a drawn action."""
    place = int(np.searchsorted(np.cumsum(probabilities), rng.random(), side="right"))
    return min(place, len(probabilities) - 1)


def _normal_cdf(z: Floats) -> Floats:
    # read from a table: at most 2e-4 off, and much faster than `NormalDist.cdf`
    places = np.minimum(np.maximum(z * _CDF_STEPS + (_CDF_LIMIT * _CDF_STEPS + 0.5), 0.0), len(_CDF) - 1.0)
    cdf: Floats = _CDF.take(places.astype(np.intp))
    return cdf


class Budget:
    """Keeps dear actions to a share of all choices: they must gain more than a price, a quantile of past gains."""

    def __init__(self, share: float, window: int = 2000) -> None:
        """Allow dear actions for a `share` of choices (0 to 1); the quantile is over the last `window` gains."""
        self.share = share
        self._window = window
        self._gains: deque[float] = deque()
        self._sorted: list[float] = []
        self._choices = 0
        self._dear = 0

    @property
    def spent(self) -> bool:
        """Whether one more dear action would exceed the budget."""
        return self._dear + 1 > self.share * (self._choices + 1) + 1

    @property
    def price(self) -> float:
        """The least gain, 0 or more, that an expensive action must promise.

        The quantile above which the allowed share of gains lies, corrected by what was used too much or too little.
        """
        if not self._sorted:
            return 0.0
        correction = (self.share * self._choices - self._dear) / min(self._choices + 1, _CORRECTED_OVER)
        share = min(1.0, max(0.0, self.share + correction))
        place = min(len(self._sorted) - 1, int((1.0 - share) * len(self._sorted)))
        return max(0.0, self._sorted[place])

    def note(self, gain: float, dear: bool) -> None:
        """Note what a dear action would have gained in a choice, and whether one was taken."""
        self._choices += 1
        self._dear += dear
        self._gains.append(gain)
        insort(self._sorted, gain)
        if len(self._gains) > self._window:
            self._sorted.pop(bisect_left(self._sorted, self._gains.popleft()))
