"""Predict how probably an action succeeds in a situation: the average of three linear models on its features.

1. A logistic model for each action, which learns only from the action's own outcomes.
2. A shared one: logit = ability - slope * difficulty(features), as in item response theory (Birnbaum, in Lord & Novick,
   1968). Ability and slope are sums over the parts of an action, so a new persona starts from its model and role.
3. Bayesian linear regression for each action without persona, on all features but the embedding. It learns from an
   outcome at once, and knows its uncertainty (Bishop, PRML, 3.3; inverse updated by Sherman & Morrison).

The first two learn online by Adagrad (Duchi, Hazan & Singer, JMLR 12, 2011). When an outcome replaces an earlier one,
they subtract its gradient at the present weights; the third removes it exactly.

The features are surface counts, categories and the text's embedding. Counts are z-scored with running moments and pass
an RBF map, so that a linear model on them can bend. A `Calibrator` corrects the predicted probabilities.
"""

import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.memrl.episodes import Action, Replaced, Situation

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


_LEAST_CHANCE = 1e-6


def sigmoid(logits: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-np.minimum(np.maximum(logits, -30.0), 30.0)))


def logit(probabilities: Any) -> Any:
    """Return the logits of probabilities, which are clipped to stay off 0 and 1."""
    inside = np.clip(probabilities, _LEAST_CHANCE, 1.0 - _LEAST_CHANCE)
    return np.log(inside / (1.0 - inside))


def logit_of(probability: float) -> float:
    """Like `logit` for one number, and much faster."""
    inside = min(1.0 - _LEAST_CHANCE, max(_LEAST_CHANCE, probability))
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


_EDGE = 0.02  # limits of the third model's prediction, which is linear
_NO_SPREAD = 1e-9  # least variance of the third model: single precision may round it below 0
_LEAST_SHRUNK = 0.1  # least factor for the third model's precision when an outcome is taken back
_CACHE_LIMIT = 64  # sets of actions whose places are cached
_NO_GRADIENT = 1e-8  # the sum of squared gradients that Adagrad starts with


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSettings:
    rate: float = 0.05  # of Adagrad
    decay: float = 1e-4  # L2 pull of weights to 0 at each update
    prior: float = 3.0  # precision of the third model's prior, in outcomes
    patience: float = 10.0  # outcomes of an action after which the first and the third model have half of their weight
    own: float = 1.0  # weight of the first model
    shared: float = 0.3  # weight of the second, which shares what actions have in common
    bayes: float = 1.0  # weight of the third


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the head's arrays hold some actions."""

    owned: NDArray[np.intp]  # the places of actions with models of their own
    rows: NDArray[np.intp]  # of those models
    parts: Floats  # 1 if an action has a part: shape (actions, parts)
    lines: NDArray[np.intp]  # rows of the third model, sorted and unique
    lined: NDArray[np.intp]  # the places of actions with such a row
    line_of: NDArray[np.intp]  # index into `lines`


@dataclass(frozen=True, slots=True)
class _WeighedTarget:
    """The target of an outcome, less the target that it replaces."""

    weight: float  # negative if more is replaced than added
    moment: float  # sum of target * weight

    @classmethod
    def of(cls, target: float, weight: float, replaced: Replaced | None) -> "_WeighedTarget":
        if replaced is None:
            return cls(weight, weight * target)
        return cls(weight - replaced.weight, weight * target - replaced.weight * replaced.reward)

    def error(self, expected: float) -> float:
        return self.weight * expected - self.moment


class Head:
    """The three models. They grow with the number of actions that were ever updated."""

    def __init__(self, size: int, embedded: int, settings: HeadSettings) -> None:
        """Start with an even chance of success. The last `embedded` of `size` features are an embedding."""
        self._settings = settings
        self._plain = size - embedded  # number of features before the embedding
        self._actions: dict[Action, int] = {}
        self._weights = np.zeros((0, size))
        self._squares = np.zeros((0, size))
        self._counts = np.zeros(0)
        self._difficulty = np.zeros(size)
        self._difficulty_squares = np.full(size, _NO_GRADIENT)
        self._parts: dict[str, int] = {}
        self._ability = np.zeros((0, 2))  # ability and slope of each part of an action
        self._ability_squares = np.zeros((0, 2))
        self._lines: dict[Action, int] = {}  # rows of the third model, by action without persona
        self._means = np.zeros((0, self._plain))
        self._covariances = np.zeros((0, self._plain, self._plain))
        # In single precision, which halves the memory traffic of predictions. Updates need double precision: thousands
        # of subtractions must leave a covariance positive definite.
        self._narrow = np.zeros((0, self._plain, self._plain), dtype=np.float32)
        self._line_counts = np.zeros(0)
        self._cache: dict[tuple[Action, ...], _Places] = {}

    @property
    def actions(self) -> tuple[Action, ...]:
        """Actions in the order of their first update."""
        return tuple(self._actions)

    def predict(self, features: Floats, actions: Sequence[Action]) -> tuple[Floats, Floats]:
        """Return success probabilities, and how many outcomes each is worth (at least 1), both of shape (actions,)."""
        places = self._places_of(actions)
        ability = places.parts @ self._ability
        shared = sigmoid(ability[:, 0] - (1.0 + ability[:, 1]) * float(self._difficulty @ features))
        sums, weights = self._settings.shared * shared, np.full(len(actions), self._settings.shared)
        if len(places.rows):
            weight = self._settings.own * self._trust(self._counts[places.rows])
            sums[places.owned] += weight * sigmoid(self._weights.take(places.rows, axis=0) @ features)
            weights[places.owned] += weight
        worth = self._predict_lines(features[: self._plain], places, sums, weights)
        return np.where(weights > 0, sums / np.maximum(weights, 1e-12), 0.5), worth

    def update(
        self, features: Floats, action: Action, target: float, weight: float = 1.0, replaced: Replaced | None = None
    ) -> None:
        """Learn that an action came to `target` (0 to 1) with these features, in place of what was `replaced`."""
        row = self._row(action)
        outcome = _WeighedTarget.of(target, weight, replaced)
        self._update_shared(features, action, outcome)
        self._update_line(features[: self._plain], without_persona(action), outcome)
        weights, squares = self._weights[row], self._squares[row]
        error = outcome.error(float(sigmoid(weights @ features)))
        gradient = error * features + self._settings.decay * weights
        squares += gradient**2
        weights -= self._settings.rate * gradient / np.sqrt(squares)
        self._counts[row] = max(0.0, self._counts[row] + outcome.weight)

    def _predict_lines(self, plain: Floats, places: "_Places", sums: Floats, weights: Floats) -> Floats:
        # adds predictions to `sums` and their weights to `weights`; returns how many outcomes each is worth
        worth = np.full(len(sums), max(1.0, self._settings.prior / float(plain @ plain)))
        lines = places.lines
        if len(lines):
            weight = (self._settings.bayes * self._trust(self._line_counts[lines]))[places.line_of]
            expected = np.minimum(np.maximum(0.5 + self._means[lines] @ plain, _EDGE), 1.0 - _EDGE)
            sums[places.lined] += weight * expected[places.line_of]
            weights[places.lined] += weight
            single = plain.astype(np.float32)
            narrow = self._narrow if len(lines) == len(self._narrow) else self._narrow[lines]
            spread = (narrow.reshape(-1, self._plain) @ single).reshape(len(lines), self._plain) @ single
            spread = np.maximum(spread, _NO_SPREAD)
            worth[places.lined] = np.maximum(1.0, 1.0 / spread)[places.line_of]
        return worth

    def _places_of(self, actions: Sequence[Action]) -> "_Places":
        # cached until an action is new
        key = tuple(actions)
        if (cached := self._cache.get(key)) is not None:
            return cached
        owned = [place for place, action in enumerate(actions) if action in self._actions]
        parts = np.zeros((len(actions), len(self._parts)))
        lined: list[int] = []
        line_of: list[int] = []
        for place, action in enumerate(actions):
            parts[place, [self._parts[part] for part in _parts(action) if part in self._parts]] = 1.0
            if (row := self._lines.get(without_persona(action))) is not None:
                lined.append(place)
                line_of.append(row)
        rows = sorted({*line_of})
        if len(self._cache) >= _CACHE_LIMIT:
            self._cache.clear()
        self._cache[key] = places = _Places(
            owned=np.array(owned, dtype=np.intp),
            rows=np.array([self._actions[actions[place]] for place in owned], dtype=np.intp),
            parts=parts,
            lines=np.array(rows, dtype=np.intp),
            lined=np.array(lined, dtype=np.intp),
            line_of=np.searchsorted(rows, line_of).astype(np.intp),
        )
        return places

    def _trust(self, counts: Any) -> Any:
        return counts / (counts + self._settings.patience)

    def _update_shared(self, features: Floats, action: Action, outcome: "_WeighedTarget") -> None:
        places = [self._parts[part] for part in _parts(action)]
        offset, slope = self._ability[places].sum(axis=0)
        difficulty = float(self._difficulty @ features)
        error = outcome.error(float(sigmoid(offset - (1.0 + slope) * difficulty)))
        rate, decay = self._settings.rate, self._settings.decay
        gradient = -error * (1.0 + slope) * features + decay * self._difficulty
        self._difficulty_squares += gradient**2
        self._difficulty -= rate * gradient / np.sqrt(self._difficulty_squares)
        step = error * np.array((1.0, -difficulty)) + decay * self._ability[places]
        self._ability_squares[places] += step**2
        self._ability[places] -= rate * step / np.sqrt(self._ability_squares[places])

    def _update_line(self, plain: Floats, action: Action, outcome: "_WeighedTarget") -> None:
        if outcome.weight == outcome.moment == 0:
            return
        row = self._lines[action]
        mean, covariance = self._means[row], self._covariances[row]
        gain = covariance @ plain
        grown = 1.0 + outcome.weight * float(plain @ gain)
        change = outcome.weight
        if grown < _LEAST_SHRUNK:  # the features were others then: a precision has to stay positive
            change, grown = 0.0, 1.0
        mean -= gain * (outcome.error(0.5 + float(mean @ plain)) / grown)
        covariance -= np.outer(gain, gain * (change / grown))
        self._narrow[row][...] = covariance
        self._line_counts[row] = max(0.0, self._line_counts[row] + outcome.weight)

    def _row(self, action: Action) -> int:
        if action in self._actions:
            return self._actions[action]
        self._cache.clear()
        for part in _parts(action):
            if part not in self._parts:
                self._parts[part] = len(self._parts)
                self._ability = np.vstack((self._ability, np.zeros((1, 2))))
                self._ability_squares = np.vstack((self._ability_squares, np.full((1, 2), _NO_GRADIENT)))
        if (line := without_persona(action)) not in self._lines:
            self._lines[line] = len(self._lines)
            wide = np.eye(self._plain)[None] / self._settings.prior
            self._means = np.vstack((self._means, np.zeros((1, self._plain))))
            self._covariances = np.concatenate((self._covariances, wide))
            self._narrow = np.concatenate((self._narrow, wide.astype(np.float32)))
            self._line_counts = np.append(self._line_counts, 0.0)
        self._actions[action] = len(self._actions)
        empty = np.zeros((1, self._weights.shape[1]))
        self._weights = np.vstack((self._weights, empty))
        self._squares = np.vstack((self._squares, empty + _NO_GRADIENT))
        self._counts = np.append(self._counts, 0.0)
        return self._actions[action]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what was learned by name. The rows follow the order of `self.actions`."""
        return {
            "weights": self._weights,
            "squares": self._squares,
            "counts": self._counts,
            "difficulty": self._difficulty,
            "difficulty_squares": self._difficulty_squares,
            "ability": self._ability,
            "ability_squares": self._ability_squares,
            "means": self._means,
            "covariances": self._covariances,
            "line_counts": self._line_counts,
        }

    def restore(self, actions: Sequence[Action], arrays: dict[str, NDArray[Any]]) -> None:
        """Put back what `arrays` returned. Raises ValueError if arrays are missing, not finite or of another shape."""
        for action in actions:
            self._row(action)
        for name, now in self.arrays().items():
            if name not in arrays or arrays[name].shape != now.shape or not np.isfinite(arrays[name]).all():
                raise ValueError(f"the head's {name} should be finite numbers of the shape {now.shape}")
            now[...] = arrays[name]
        self._narrow[...] = self._covariances


@lru_cache(maxsize=1024)
def without_persona(action: Action) -> Action:
    return Action(action.role, "", action.model, action.thinking, action.mode) if action.persona else action


@lru_cache(maxsize=1024)
def _parts(action: Action) -> tuple[str, ...]:
    fields = {name: getattr(action, name) for name in ("persona", "model", "thinking", "mode")}
    named = [f"{name} {value}" for name, value in fields.items() if value]
    return f"role {action.role}", *named, f"action {action}"
