"""Estimate off-policy what another router would have earned, with 95 % intervals.

Logged choices have known propensities. IPS weights each reward by how much more probable the other router makes the
action (Horvitz & Thompson, 1952); self-normalised IPS has less variance (Swaminathan & Joachims, NeurIPS 2015); the
doubly robust estimate also uses a reward model (Dudik, Langford & Li, ICML 2011). Intervals: bootstrap percentiles
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
    """One number for each logged choice, shape (choices,)."""

    rewards: Floats
    propensities: Floats  # of the logged action when it was drawn
    targets: Floats  # the probability that the other router gives the logged action
    predicted: Floats  # the reward that a model predicts for the logged action
    expected: Floats  # its mean prediction over all actions, weighted by the other router's probabilities

    def __post_init__(self) -> None:
        """Raise ValueError for empty arrays, different lengths, or numbers that are not probabilities."""
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
        return self.targets / self.propensities


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """A mean reward, or the difference of two, with its 95 % interval."""

    value: float
    low: float
    high: float
    effective: float  # the effective number of choices: (sum of weights)^2 / sum of squared weights (Kish, 1965)


def ips(log: Log, rng: np.random.Generator, resamples: int = 1000) -> Estimated:
    return _bootstrap(_ips_terms(log), None, log.weights, rng, resamples)


def self_normalised(log: Log, rng: np.random.Generator, resamples: int = 1000) -> Estimated:
    """Return the self-normalised estimate, or that of IPS if the other router never does what was logged."""
    if not log.weights.any():
        return ips(log, rng, resamples)
    return _bootstrap(_ips_terms(log), log.weights, log.weights, rng, resamples)


def doubly_robust(log: Log, rng: np.random.Generator, resamples: int = 1000) -> Estimated:
    return _bootstrap(_robust_terms(log), None, log.weights, rng, resamples)


def difference(router: Log, baseline: Log, rng: np.random.Generator, resamples: int = 1000) -> Estimated:
    """Return by how much `router` earns more than `baseline`, doubly robust, on the same logged choices.

    `effective` is the smaller of the two. Raises ValueError if the logs have different lengths.
    """
    if len(router.rewards) != len(baseline.rewards):
        raise ValueError(
            f"the logs have {len(router.rewards)} and {len(baseline.rewards)} choices; accepted: the same ones"
        )
    terms = _robust_terms(router) - _robust_terms(baseline)
    estimated = _bootstrap(terms, None, router.weights, rng, resamples)
    effective = min(estimated.effective, _effective(baseline.weights))
    return Estimated(value=estimated.value, low=estimated.low, high=estimated.high, effective=effective)


ESTIMATORS: dict[str, Callable[[Log, np.random.Generator], Estimated]] = {
    "ips": ips,
    "self-normalised": self_normalised,
    "doubly robust": doubly_robust,
}


def _ips_terms(log: Log) -> Floats:
    return log.weights * log.rewards


def _robust_terms(log: Log) -> Floats:
    return log.expected + log.weights * (log.rewards - log.predicted)


def _bootstrap(
    terms: Floats, divisors: Floats | None, weights: Floats, rng: np.random.Generator, resamples: int
) -> Estimated:
    # percentiles of the mean, or of sum(terms) / sum(divisors), over resampled choices
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
