"""Estimate from logged choices what another router would have earned, each time with a 95 % interval.

The router that made the choices drew them with known propensities. Weighing each reward with how much more probable
the other router makes the same action gives an unbiased estimate (inverse propensity scoring: Horvitz & Thompson,
1952); dividing by the sum of weights instead of their expectation has less variance (self-normalised: Swaminathan &
Joachims, NeurIPS 2015); a model of the reward, corrected by weighing its errors, has less still and stays unbiased
whatever the model is (doubly robust: Dudik, Langford & Li, ICML 2011). Intervals are percentiles of the bootstrap
(Efron, 1979).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """Logged choices, and what another router would have done: arrays of one number for each choice."""

    rewards: Floats
    propensities: Floats
    """How probable the logged action was when it was drawn."""
    targets: Floats
    """How probable the other router makes the logged action."""
    predicted: Floats
    """The reward that a model predicts for the logged action."""
    expected: Floats
    """The mean of the rewards that it predicts for all actions, weighed by the other router's probabilities."""

    def __post_init__(self) -> None:
        """Refuse arrays of different lengths, none at all, and probabilities that are none, with a ValueError."""
        sizes = {len(array) for array in self._arrays()}
        if len(sizes) != 1 or sizes == {0}:
            raise ValueError(f"the arrays of a log have the lengths {sorted(sizes)}; accepted: the same one, not 0")
        if not all(np.isfinite(array).all() for array in self._arrays()):
            raise ValueError("a log holds numbers that are not finite")
        if self.propensities.min() <= 0 or self.propensities.max() > 1:
            raise ValueError("a propensity is not above 0 and at most 1")
        if self.targets.min() < 0 or self.targets.max() > 1:
            raise ValueError("a probability of the other router is not from 0 to 1")

    def _arrays(self) -> tuple[Floats, ...]:
        return self.rewards, self.propensities, self.targets, self.predicted, self.expected

    @property
    def weights(self) -> Floats:
        """Return how much more probable the other router makes each action."""
        return self.targets / self.propensities


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """The mean reward of a router, or a difference of two, with its 95 % interval."""

    value: float
    low: float
    high: float
    effective: float
    """The choices that the estimate is worth: (sum of weights)^2 / sum of squared weights (Kish, 1965)."""


def ips(log: Log, rng: np.random.Generator, resamples: int = 1000) -> Estimated:
    """Return the estimate by inverse propensity scoring."""
    return _bootstrap(_ips_terms(log), None, log.weights, rng, resamples)


def self_normalised(log: Log, rng: np.random.Generator, resamples: int = 1000) -> Estimated:
    """Return the self-normalised estimate; that of IPS if the other router never does what was logged."""
    if not log.weights.any():
        return ips(log, rng, resamples)
    return _bootstrap(_ips_terms(log), log.weights, log.weights, rng, resamples)


def doubly_robust(log: Log, rng: np.random.Generator, resamples: int = 1000) -> Estimated:
    """Return the doubly robust estimate."""
    return _bootstrap(_robust_terms(log), None, log.weights, rng, resamples)


def difference(one: Log, other: Log, rng: np.random.Generator, resamples: int = 1000) -> Estimated:
    """Return by how much `one` router earns more than the `other`, doubly robust, on the same logged choices.

    Raises ValueError if the logs have different lengths. `effective` is the smaller of the two.
    """
    if len(one.rewards) != len(other.rewards):
        raise ValueError(f"the logs have {len(one.rewards)} and {len(other.rewards)} choices; accepted: the same ones")
    terms = _robust_terms(one) - _robust_terms(other)
    found = _bootstrap(terms, None, one.weights, rng, resamples)
    effective = min(found.effective, _effective(other.weights))
    return Estimated(value=found.value, low=found.low, high=found.high, effective=effective)


ESTIMATORS: dict[str, Callable[[Log, np.random.Generator], Estimated]] = {
    "ips": ips,
    "self-normalised": self_normalised,
    "doubly robust": doubly_robust,
}
"""The estimators by name."""


def _ips_terms(log: Log) -> Floats:
    return log.weights * log.rewards


def _robust_terms(log: Log) -> Floats:
    return log.expected + log.weights * (log.rewards - log.predicted)


def _bootstrap(
    terms: Floats, divisors: Floats | None, weights: Floats, rng: np.random.Generator, resamples: int
) -> Estimated:
    """Return the mean of terms, or the sum of terms over that of divisors, with percentiles over resampled choices."""
    count = len(terms)
    means = np.empty(resamples)
    for place in range(resamples):
        drawn = rng.integers(0, count, count)
        means[place] = _ratio(terms[drawn], None if divisors is None else divisors[drawn])
    low, high = np.nanpercentile(means, (2.5, 97.5))
    return Estimated(value=_ratio(terms, divisors), low=float(low), high=float(high), effective=_effective(weights))


def _ratio(terms: Floats, divisors: Floats | None) -> float:
    if divisors is None:
        return float(terms.mean())
    whole = float(divisors.sum())
    return float(terms.sum()) / whole if whole > 0 else float("nan")


def _effective(weights: NDArray[Any]) -> float:
    squares = float((weights * weights).sum())
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0
