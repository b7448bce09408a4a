"""Make predicted probabilities agree with how often what they predict happens, and measure how well they do."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memrl.episodes import Replaced

Floats = NDArray[np.float64]

_EDGE = 1e-6


def sigmoid(logits: Any) -> Any:
    """Return the probabilities of logits."""
    return 1.0 / (1.0 + np.exp(-np.minimum(np.maximum(logits, -30.0), 30.0)))


def logit(probabilities: Any) -> Any:
    """Return the logits of probabilities, which are kept off 0 and 1."""
    inside = np.clip(probabilities, _EDGE, 1.0 - _EDGE)
    return np.log(inside / (1.0 - inside))


def logit_of(probability: float) -> float:
    """Return the logit of one probability, as `logit` does, and much faster."""
    inside = min(1.0 - _EDGE, max(_EDGE, probability))
    return math.log(inside / (1.0 - inside))


def calibration_error(predicted: Floats, happened: Floats, bins: int = 15) -> float:
    """Return the expected calibration error: the mean distance, over predictions, of their bin's mean from the truth.

    Bins have equal widths (Guo et al., On calibration of modern neural networks, ICML 2017). 0 without predictions.
    """
    if not len(predicted):
        return 0.0
    places = np.minimum((predicted * bins).astype(int), bins - 1)
    gaps = np.bincount(places, predicted - happened, bins)
    return float(np.abs(gaps).sum() / len(predicted))


class Calibrator:
    """Platt scaling that goes on learning: probability = sigmoid(slope * logit + offset), by Adagrad.

    Platt, Probabilistic outputs for support vector machines, 1999; online: Gupta & Ramdas, Online Platt scaling with
    calibeating, ICML 2023. It begins as the identity, and stays near it until there is evidence.
    """

    def __init__(self, rate: float = 0.1) -> None:
        self._rate = rate
        self.state = np.array((1.0, 0.0, 1.0, 1.0))
        """Slope, offset, and the sum of squared gradients of each."""

    def __call__(self, raw: float) -> float:
        """Return the calibrated probability for a raw logit."""
        slope, offset = self.state[:2].tolist()
        return 1.0 / (1.0 + math.exp(-min(30.0, max(-30.0, slope * raw + offset))))

    def update(self, raw: float, target: float, weight: float = 1.0, replaced: Replaced | None = None) -> None:
        """Learn that a prediction with this logit turned out as `target`, which is from 0 to 1.

        It takes the place of what was `replaced`, whose gradient is subtracted.
        """
        expected = self(raw)
        error = weight * (expected - target)
        if replaced is not None:
            error -= replaced.weight * (expected - replaced.reward)
        gradient = error * np.array((raw, 1.0))
        self.state[2:] += gradient**2
        self.state[:2] -= self._rate * gradient / np.sqrt(self.state[2:])
        self.state[0] = max(0.05, self.state[0])
