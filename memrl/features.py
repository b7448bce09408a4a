"""Turn a situation into the numbers that the head learns from: surface counts, categories and the text's embedding.

The counts are z-scored with running moments and then go through an RBF map, so that a linear model on them can bend.
"""

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from memrl.episodes import Situation

Floats = NDArray[np.float64]
Vector = NDArray[np.float32]

SURFACE: Final = (
    "characters",
    "words",
    "lines",
    "letters per word",
    "longest word",
    "distinct words",
    "digits",
    "numbers",
    "capitals",
    "punctuation",
    "symbols",
    "beyond ASCII",
    "question marks",
    "brackets",
    "quotes",
    "longest number",
)
"""What `surface` counts, in its order."""

DESCRIBED: Final = len(SURFACE) + 2
"""How many numbers `describe` returns."""

CATEGORIES: Final = 64
"""How many places the categories of a situation are hashed into."""

READ_AT_MOST: Final = 20_000
"""Characters of a text that are counted, which limits the time that a long text takes."""

_WORD = re.compile(r"[^\W\d_]+")
_NUMBER = re.compile(r"\d+")
_CLASSES: Final = {
    "punctuation": ".,;:!?'\"-",
    "symbols": "+*/=^<>%$\\|_~#&@`",
    "brackets": "()[]{}",
    "quotes": "\"'`",
}


@lru_cache(maxsize=256)
def surface(text: str) -> Floats:
    """Return 16 counts of how a text is written, in the order of SURFACE: logarithms of counts, or shares."""
    text = text[:READ_AT_MOST]
    size = max(1, len(text))
    words = _WORD.findall(text)
    lengths = [len(word) for word in words] or [0]
    numbers = _NUMBER.findall(text)
    digits = sum(map(text.count, "0123456789"))
    shares = {name: sum(map(text.count, letters)) / size for name, letters in _CLASSES.items()}
    counts = np.array(
        (
            np.log1p(len(text)),
            np.log1p(len(words)),
            np.log1p(text.count("\n")),
            sum(lengths) / len(lengths),
            np.log1p(max(lengths)),
            len({word.lower() for word in words}) / max(1, len(words)),
            digits / size,
            np.log1p(len(numbers)),
            sum(map(str.isupper, text)) / size,
            shares["punctuation"],
            shares["symbols"],
            1.0 - len(text.encode("ascii", "ignore")) / size,
            np.log1p(text.count("?")),
            shares["brackets"],
            shares["quotes"],
            np.log1p(max(map(len, numbers), default=0)),
        )
    )
    counts.flags.writeable = False  # the cache hands the same array out again
    return counts


def describe(situation: Situation) -> Floats:
    """Return the surface counts of a situation's text, how much it reads, and how often it has failed: shape (18,)."""
    return np.append(surface(situation.text), (np.log1p(situation.input_bytes), np.log1p(len(situation.failures))))


def categories(situation: Situation) -> Floats:
    """Return what a situation is by kind, as hashed indicators: shape (CATEGORIES,), of length 1.

    Hashing (Weinberger et al., Feature hashing for large scale multitask learning, ICML 2009) has place for task types
    and roles that nobody has thought of yet.
    """
    places = np.zeros(CATEGORIES)
    for name in _names(situation):
        places[zlib.crc32(name.encode("utf-8", "surrogatepass")) % CATEGORIES] += 1.0
    return places / max(1.0, float(np.sqrt(places @ places)))


def _names(situation: Situation) -> Iterator[str]:
    yield f"type {situation.task_type}"
    yield f"kind {situation.kind}"
    yield f"role {situation.role}"
    yield f"type {situation.task_type} kind {situation.kind} role {situation.role}"
    if situation.failures:
        yield f"failed {situation.failures[-1]}"


class Moments:
    """The running mean and variance of numbers, by Welford's method (Technometrics 4, 1962)."""

    def __init__(self, size: int) -> None:
        self.count = 0.0
        self.mean = np.zeros(size)
        self.squares = np.zeros(size)
        """The sum of squared distances from the mean."""

    def update(self, numbers: Floats) -> None:
        """Take in one more row of numbers."""
        self.count += 1.0
        away = numbers - self.mean
        self.mean += away / self.count
        self.squares += away * (numbers - self.mean)

    def z(self, numbers: Floats, limit: float = 4.0) -> Floats:
        """Return by how many standard deviations numbers are off their means, at most `limit`; 0 for what never varied.

        One imagined row at a distance of 1 keeps the first few rows from being stretched.
        """
        deviation = np.sqrt((self.squares + (self.squares > 0)) / (self.count + 1.0))
        scaled = np.divide(numbers - self.mean, deviation, out=np.zeros_like(numbers), where=deviation > 0)
        return np.clip(scaled, -limit, limit)


class RBFMap:
    """Random Fourier features of the Gaussian kernel (Rahimi & Recht, NeurIPS 2007), the same for the same seed."""

    def __init__(self, inputs: int, outputs: int, width: float, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self._directions = rng.normal(0.0, 1.0 / width, (outputs, inputs))
        self._phases = rng.uniform(0.0, 2 * np.pi, outputs)
        self._scale = np.sqrt(2.0 / outputs)

    def __call__(self, numbers: Floats) -> Floats:
        """Return the features of a row of numbers: shape (outputs,), of length 1 on average."""
        mapped: Floats = self._scale * np.cos(self._directions @ numbers + self._phases)
        return mapped


@dataclass(frozen=True, slots=True)
class FeatureSettings:
    """How features are made. A head that has learned on one of these cannot go on with another one."""

    rbf: int = 128
    """Outputs of the RBF map."""
    width: float = 4.0
    """The width of its kernel, in standard deviations of the counts."""


class Features:
    """Makes a situation and the embedding of its text one vector: a constant, categories, RBF map, embedding."""

    def __init__(self, dimensions: int, settings: FeatureSettings) -> None:
        self.dimensions = dimensions
        self.moments = Moments(DESCRIBED)
        self._map = RBFMap(DESCRIBED, settings.rbf, settings.width)
        self.size = 1 + CATEGORIES + settings.rbf + dimensions

    def of(self, situation: Situation, embedding: NDArray[Any]) -> Floats:
        """Return the features of a situation: shape (size,). Raises ValueError for an embedding of the wrong width."""
        if embedding.shape != (self.dimensions,):
            raise ValueError(f"the embedding has the shape {embedding.shape}; accepted: ({self.dimensions},)")
        counts = self._map(self.moments.z(describe(situation)))
        return np.concatenate(((1.0,), categories(situation), counts, embedding))

    def learn(self, situation: Situation) -> None:
        """Let the moments of the counts take in one more situation."""
        self.moments.update(describe(situation))
