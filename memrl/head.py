"""Predict how probably an action succeeds in a situation, by three linear models on its features, averaged.

The first is a logistic model for each action, which can learn anything but only from the action's own outcomes. The
second is shared: logit = ability - slope * difficulty(features), as in item response theory (Birnbaum, in Lord &
Novick, 1968; with a difficulty that is a function of the features). Ability and slope are sums over the parts of an
action, so that a new persona or setting begins with what is known of its model and role. Both learn online by Adagrad
(Duchi, Hazan & Singer, JMLR 12, 2011).

The third is Bayesian linear regression on all features but the embedding, for each action whatever its persona. It
takes an outcome in at once and for good, where the others need several, and knows how unsure it is (Bishop, Pattern
recognition and machine learning, 3.3; the inverse is kept up to date by the formula of Sherman & Morrison).

An outcome may take the place of an earlier one of the same attempt. The first two models then subtract the gradient of
the earlier one, at the weights of now; the third, which is a sum over outcomes, gets what it would be without it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memrl.calibration import sigmoid
from memrl.episodes import Action, Replaced

Floats = NDArray[np.float64]

_EDGE = 0.02
"""How near to 0 and 1 the third model's prediction may come, which is a line and knows no limits."""
_NO_SPREAD = 1e-9
"""The least variance of the third model's prediction, which single precision may round to less than 0."""
_LEAST_SHRUNK = 0.1
"""To which share the third model's precision along some features may shrink when an outcome is taken back."""
_KEPT = 64
"""For how many sets of actions it is kept where the arrays hold what is known of them."""
_NO_GRADIENT = 1e-8
"""The sum of squared gradients that Adagrad begins with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSettings:
    """How fast the models learn, and how much each counts."""

    rate: float = 0.05
    """The learning rate of Adagrad."""
    decay: float = 1e-4
    """The pull of weights to 0 at each update (L2)."""
    prior: float = 3.0
    """The precision of the third model's prior, in outcomes."""
    patience: float = 10.0
    """After so many outcomes of an action its own models, the first and the third, count half of what they may."""
    own: float = 1.0
    """The weight of the first model in the average."""
    shared: float = 0.3
    """The weight of the second, which carries what actions have in common until their own models know more."""
    bayes: float = 1.0
    """The weight of the third."""


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the head's arrays hold what is known of some actions."""

    known: NDArray[np.intp]
    """The places of the actions that have models of their own."""
    rows: NDArray[np.intp]
    """The rows of those models."""
    parts: Floats
    """1 where an action has a part, of which a part that was never seen is none: shape (actions, parts)."""
    lines: NDArray[np.intp]
    """The rows of the third model, each once, in their order."""
    lined: NDArray[np.intp]
    """The places of the actions that have one of these rows."""
    line_of: NDArray[np.intp]
    """Which of `lines` that is."""


@dataclass(frozen=True, slots=True)
class _WeighedTarget:
    """What an action came to, less what the same attempt had taught before: a sum of targets with their weights."""

    weight: float
    """The sum of the weights, in which that of what is replaced is negative."""
    moment: float
    """The sum of the targets times their weights."""

    @classmethod
    def of(cls, target: float, weight: float, replaced: Replaced | None) -> "_WeighedTarget":
        if replaced is None:
            return cls(weight, weight * target)
        return cls(weight - replaced.weight, weight * target - replaced.weight * replaced.reward)

    def error(self, expected: float) -> float:
        """Return by how much more was expected, summed up over the targets with their weights."""
        return self.weight * expected - self.moment


class Head:
    """The models. Their size grows with the number of actions that were ever updated."""

    def __init__(self, size: int, embedded: int, settings: HeadSettings) -> None:
        """Begin with `size` features, the last `embedded` of which are an embedding, and an even chance of success."""
        self._settings = settings
        self._plain = size - embedded
        """How many features come before the embedding."""
        self._actions: dict[Action, int] = {}
        self._weights = np.zeros((0, size))
        self._squares = np.zeros((0, size))
        self._counts = np.zeros(0)
        self._difficulty = np.zeros(size)
        self._difficulty_squares = np.full(size, _NO_GRADIENT)
        self._parts: dict[str, int] = {}
        self._ability = np.zeros((0, 2))
        """Ability and slope of each part of an action."""
        self._ability_squares = np.zeros((0, 2))
        self._lines: dict[Action, int] = {}
        """The rows of the third model, by action without persona."""
        self._means = np.zeros((0, self._plain))
        self._covariances = np.zeros((0, self._plain, self._plain))
        self._narrow = np.zeros((0, self._plain, self._plain), dtype=np.float32)
        """The same in single precision, for predictions: half of the memory that each of them reads. Updates keep to
        double precision, where thousands of subtractions leave a covariance positive definite."""
        self._line_counts = np.zeros(0)
        self._kept: dict[tuple[Action, ...], _Places] = {}

    @property
    def actions(self) -> tuple[Action, ...]:
        """Return the actions that were ever updated, in the order of their first update."""
        return tuple(self._actions)

    def predict(self, features: Floats, actions: Sequence[Action]) -> tuple[Floats, Floats]:
        """Return the probability of success of each action, and how many outcomes that is worth, 1 without any.

        Both have the shape (actions,).
        """
        places = self._places_of(actions)
        ability = places.parts @ self._ability
        shared = sigmoid(ability[:, 0] - (1.0 + ability[:, 1]) * float(self._difficulty @ features))
        sums, weights = self._settings.shared * shared, np.full(len(actions), self._settings.shared)
        if len(places.rows):
            weight = self._settings.own * self._trust(self._counts[places.rows])
            sums[places.known] += weight * sigmoid(self._weights.take(places.rows, axis=0) @ features)
            weights[places.known] += weight
        worth = self._predict_lines(features[: self._plain], places, sums, weights)
        return np.where(weights > 0, sums / np.maximum(weights, 1e-12), 0.5), worth

    def update(
        self, features: Floats, action: Action, target: float, weight: float = 1.0, replaced: Replaced | None = None
    ) -> None:
        """Learn that an action came to `target`, which is from 0 to 1, in a situation with these features.

        It takes the place of what was `replaced`, which the same attempt has taught with much the same features.
        """
        row = self._row(action)
        told = _WeighedTarget.of(target, weight, replaced)
        self._update_shared(features, action, told)
        self._update_line(features[: self._plain], without_persona(action), told)
        weights, squares = self._weights[row], self._squares[row]
        error = told.error(float(sigmoid(weights @ features)))
        gradient = error * features + self._settings.decay * weights
        squares += gradient**2
        weights -= self._settings.rate * gradient / np.sqrt(squares)
        self._counts[row] = max(0.0, self._counts[row] + told.weight)

    def _predict_lines(self, plain: Floats, places: "_Places", sums: Floats, weights: Floats) -> Floats:
        """Add the third model's predictions to `sums`, their weights to `weights`; return how much they know."""
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
        """Return where the arrays hold what is known of these actions; it is kept until an action is new."""
        key = tuple(actions)
        if (kept := self._kept.get(key)) is not None:
            return kept
        known = [place for place, action in enumerate(actions) if action in self._actions]
        parts = np.zeros((len(actions), len(self._parts)))
        lined: list[int] = []
        line_of: list[int] = []
        for place, action in enumerate(actions):
            parts[place, [self._parts[part] for part in _parts(action) if part in self._parts]] = 1.0
            if (row := self._lines.get(without_persona(action))) is not None:
                lined.append(place)
                line_of.append(row)
        rows = sorted({*line_of})
        if len(self._kept) >= _KEPT:
            self._kept.clear()
        self._kept[key] = places = _Places(
            known=np.array(known, dtype=np.intp),
            rows=np.array([self._actions[actions[place]] for place in known], dtype=np.intp),
            parts=parts,
            lines=np.array(rows, dtype=np.intp),
            lined=np.array(lined, dtype=np.intp),
            line_of=np.searchsorted(rows, line_of).astype(np.intp),
        )
        return places

    def _trust(self, counts: Any) -> Any:
        return counts / (counts + self._settings.patience)

    def _update_shared(self, features: Floats, action: Action, told: "_WeighedTarget") -> None:
        places = [self._parts[part] for part in _parts(action)]
        offset, slope = self._ability[places].sum(axis=0)
        difficulty = float(self._difficulty @ features)
        error = told.error(float(sigmoid(offset - (1.0 + slope) * difficulty)))
        rate, decay = self._settings.rate, self._settings.decay
        gradient = -error * (1.0 + slope) * features + decay * self._difficulty
        self._difficulty_squares += gradient**2
        self._difficulty -= rate * gradient / np.sqrt(self._difficulty_squares)
        step = error * np.array((1.0, -difficulty)) + decay * self._ability[places]
        self._ability_squares[places] += step**2
        self._ability[places] -= rate * step / np.sqrt(self._ability_squares[places])

    def _update_line(self, plain: Floats, action: Action, told: "_WeighedTarget") -> None:
        if told.weight == told.moment == 0:
            return
        row = self._lines[action]
        mean, covariance = self._means[row], self._covariances[row]
        gain = covariance @ plain
        grown = 1.0 + told.weight * float(plain @ gain)
        change = told.weight
        if grown < _LEAST_SHRUNK:  # the features were others then: a precision has to stay positive
            change, grown = 0.0, 1.0
        mean -= gain * (told.error(0.5 + float(mean @ plain)) / grown)
        covariance -= np.outer(gain, gain * (change / grown))
        self._narrow[row][...] = covariance
        self._line_counts[row] = max(0.0, self._line_counts[row] + told.weight)

    def _row(self, action: Action) -> int:
        """Return the row of an action, which is appended at its first time."""
        if action in self._actions:
            return self._actions[action]
        self._kept.clear()
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
        """Return all that was learned, by name; which row belongs to what follows from the order of `self.actions`."""
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
        """Put back what `arrays` returned. Raises ValueError for arrays of another shape, or ones that are missing."""
        for action in actions:
            self._row(action)
        for name, now in self.arrays().items():
            if name not in arrays or arrays[name].shape != now.shape or not np.isfinite(arrays[name]).all():
                raise ValueError(f"the head's {name} should be finite numbers of the shape {now.shape}")
            now[...] = arrays[name]
        self._narrow[...] = self._covariances


@lru_cache(maxsize=1024)
def without_persona(action: Action) -> Action:
    """Return the same action without its persona."""
    return Action(action.role, "", action.model, action.thinking, action.mode) if action.persona else action


@lru_cache(maxsize=1024)
def _parts(action: Action) -> tuple[str, ...]:
    fields = {name: getattr(action, name) for name in ("persona", "model", "thinking", "mode")}
    named = [f"{name} {value}" for name, value in fields.items() if value]
    return f"role {action.role}", *named, f"action {action}"
