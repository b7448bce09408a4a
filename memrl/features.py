"""Turn a situation into features for the head: surface counts, categories and the text's embedding.

Counts are z-scored with running moments and pass an RBF map, so that a linear model on them can bend.
"""

import math
import re
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.memrl.episodes import Situation

Floats = NDArray[np.float64]
Vector = NDArray[np.float32]

# what `surface` counts, in its order
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

DESCRIBED: Final = len(SURFACE) + 2  # numbers that `describe` returns

CATEGORIES: Final = 64  # places that the categories of a situation are hashed into

READ_AT_MOST: Final = 20_000  # characters; limits the time that a long text takes

_WORD = re.compile(r"[^\W\d_]+")
_NUMBER = re.compile(r"\d+")
_DIGITS: Final = b"0123456789"
_CAPITALS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_PUNCTUATION: Final = b".,;:!?'\"-"
_SYMBOLS: Final = b"+*/=^<>%$\\|_~#&@`"
_BRACKETS: Final = b"()[]{}"
_QUOTES: Final = b"\"'`"


@lru_cache(maxsize=256)
def surface(text: str) -> Floats:
    """Return 16 logarithms of counts, or shares, in the order of SURFACE."""
    text = text[:READ_AT_MOST]
    size = max(1, len(text))
    data = text.encode("ascii", "ignore")  # its bytes are counted by classes, which is much faster than letters are
    words = _WORD.findall(text)
    lengths = [*map(len, words)] or [0]
    numbers = _NUMBER.findall(text)
    capitals = _count(data, _CAPITALS)
    if len(data) < len(text):
        capitals += sum(letter.isupper() for letter in text if letter > "\x7f")
    counts = np.array(
        (
            math.log1p(len(text)),
            math.log1p(len(words)),
            math.log1p(data.count(b"\n")),
            sum(lengths) / len(lengths),
            math.log1p(max(lengths)),
            len({*map(str.lower, words)}) / max(1, len(words)),
            _count(data, _DIGITS) / size,
            math.log1p(len(numbers)),
            capitals / size,
            _count(data, _PUNCTUATION) / size,
            _count(data, _SYMBOLS) / size,
            1.0 - len(data) / size,
            math.log1p(data.count(b"?")),
            _count(data, _BRACKETS) / size,
            _count(data, _QUOTES) / size,
            math.log1p(max(map(len, numbers), default=0)),
        )
    )
    counts.flags.writeable = False  # the cache hands the same array out again
    return counts


def _count(data: bytes, members: bytes) -> int:
    return len(data) - len(data.translate(None, members))


def describe(situation: Situation) -> Floats:
    """Return the surface counts, then the logarithms of input bytes and failures: shape (18,)."""
    counts = np.empty(DESCRIBED)
    counts[: len(SURFACE)] = surface(situation.text)
    counts[len(SURFACE) :] = math.log1p(situation.input_bytes), math.log1p(len(situation.failures))
    return counts


def categories(situation: Situation) -> Floats:
    """Return task type, kind, role and last failure as hashed indicators: shape (CATEGORIES,), length 1, read-only.

    Hashing (Weinberger et al., ICML 2009) has room for task types and roles that are not known in advance.
    """
    last = situation.failures[-1] if situation.failures else None
    return _indicators(situation.task_type, situation.kind, situation.role, last)


@lru_cache(maxsize=1024)
def _indicators(task_type: str | None, kind: str, role: str, failure: str | None) -> Floats:
    names = [
        f"type {task_type}",
        f"kind {kind}",
        f"role {role}",
        f"type {task_type} kind {kind} role {role}",
        *([f"failed {failure}"] if failure is not None else []),
    ]
    places = np.zeros(CATEGORIES)
    for name in names:
        places[zlib.crc32(name.encode("utf-8", "surrogatepass")) % CATEGORIES] += 1.0
    places /= max(1.0, float(np.sqrt(places @ places)))
    places.flags.writeable = False
    return places


class Moments:
    """Running mean and variance by Welford's method (Technometrics 4, 1962)."""

    def __init__(self, size: int) -> None:
        self.count = 0.0
        self.mean = np.zeros(size)
        self.squares = np.zeros(size)  # sums of squared distances from the mean
        self._scales: Floats | None = None  # 1 / standard deviation, 0 for what never varied; None: to be computed

    def update(self, numbers: Floats) -> None:
        self.count += 1.0
        away = numbers - self.mean
        self.mean += away / self.count
        self.squares += away * (numbers - self.mean)
        self._scales = None

    def restore(self, count: float, mean: Floats, squares: Floats) -> None:
        """Put back what was learned. Raises ValueError for arrays of another shape."""
        self.count, self._scales = count, None
        self.mean[...], self.squares[...] = mean, squares

    def z(self, numbers: Floats, limit: float = 4.0) -> Floats:
        """Return z-scores, clipped to +-`limit`; 0 for what never varied."""
        if self._scales is None:
            # an imagined row at distance 1 tempers the first rows
            deviation = np.sqrt((self.squares + (self.squares > 0)) / (self.count + 1.0))
            self._scales = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)
        scaled = (numbers - self.mean) * self._scales
        clipped: Floats = np.minimum(np.maximum(scaled, -limit), limit)  # `np.clip` takes several times as long
        return clipped


class RBFMap:
    """Random Fourier features of the Gaussian kernel (Rahimi & Recht, NeurIPS 2007), the same for the same seed."""

    def __init__(self, inputs: int, outputs: int, width: float, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self._directions = rng.normal(0.0, 1.0 / width, (outputs, inputs))
        self._phases = rng.uniform(0.0, 2 * np.pi, outputs)
        self._scale = np.sqrt(2.0 / outputs)

    def __call__(self, numbers: Floats) -> Floats:
        """Return features: shape (outputs,), of length 1 on average."""
        mapped: Floats = self._scale * np.cos(self._directions @ numbers + self._phases)
        return mapped


@dataclass(frozen=True, slots=True)
class FeatureSettings:
    """How features are made. A head cannot be used with other settings than it learned with."""

    rbf: int = 128  # outputs of the RBF map
    width: float = 3.0  # kernel width, in standard deviations of the counts


class Features:
    """Joins a constant, categories, RBF map and embedding into one vector."""

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
        self.moments.update(describe(situation))
