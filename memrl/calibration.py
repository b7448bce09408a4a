"""Calibrate predicted probabilities, and measure their calibration error."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.memrl.episodes import Replaced

Floats = NDArray[np.float64]

_EDGE = 1e-6


def sigmoid(logits: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-np.minimum(np.maximum(logits, -30.0), 30.0)))


def logit(probabilities: Any) -> Any:
    """Return the logits of probabilities, which are clipped to stay off 0 and 1."""
    inside = np.clip(probabilities, _EDGE, 1.0 - _EDGE)
    return np.log(inside / (1.0 - inside))


def logit_of(probability: float) -> float:
    """Like `logit` for one number, and much faster."""
    inside = min(1.0 - _EDGE, max(_EDGE, probability))
    return math.log(inside / (1.0 - inside))


def calibration_error(predicted: Floats, happened: Floats, bins: int = 15) -> float:
    """Return the expected calibration error: the mean over predictions of |bin mean - truth|; 0 without predictions.

    Bins have equal widths (Guo et al., On calibration of modern neural networks, ICML 2017).
    """
    if not len(predicted):
        return 0.0
    places = np.minimum((predicted * bins).astype(int), bins - 1)
    gaps = np.bincount(places, predicted - happened, bins)
    return float(np.abs(gaps).sum() / len(predicted))


class Calibrator:
    """Platt scaling that keeps learning by Adagrad: probability = sigmoid(slope * logit + offset).

    Platt, 1999; online: Gupta & Ramdas, Online Platt scaling with calibeating, ICML 2023. Starts as the identity.
    """

    def __init__(self, rate: float = 0.1) -> None:
        self._rate = rate
        self.state = np.array((1.0, 0.0, 1.0, 1.0))  # slope, offset, and the sum of squared gradients of each

    def __call__(self, raw: float) -> float:
        slope, offset = self.state[:2].tolist()
        return 1.0 / (1.0 + math.exp(-min(30.0, max(-30.0, slope * raw + offset))))

    def update(self, raw: float, target: float, weight: float = 1.0, replaced: Replaced | None = None) -> None:
        """Learn that a prediction with this logit turned out as `target` (0 to 1).

        The gradient of a `replaced` outcome is subtracted.
        """
        expected = self(raw)
        error = weight * (expected - target)
        if replaced is not None:
            error -= replaced.weight * (expected - replaced.reward)
        gradient = error * np.array((raw, 1.0))
        self.state[2:] += gradient**2
        self.state[:2] -= self._rate * gradient / np.sqrt(self.state[2:])
        self.state[0] = max(0.05, self.state[0])
