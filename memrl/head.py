"""Predict how probably an action succeeds in a situation, by two linear models on its features, averaged.

One is a logistic model for each action, which can learn anything but only from the action's own outcomes. The other is
shared: logit = ability - slope * difficulty(features), as in item response theory (Birnbaum, in Lord & Novick, 1968;
with a difficulty that is a function of the features). Ability and slope are sums over the parts of an action, so that
a new persona or model setting begins with what is known of its model and role.

Both learn online by Adagrad (Duchi, Hazan & Singer, JMLR 12, 2011), one outcome at a time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memrl.calibration import sigmoid
from memrl.episodes import Action

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSettings:
    """How fast the head learns, and how it is kept small."""

    rate: float = 0.05
    """The learning rate of Adagrad."""
    decay: float = 1e-4
    """The pull of weights to 0 at each update (L2)."""
    own: float = 0.5
    """The part of an action's own model in the average; the rest is the shared model's."""
    patience: float = 10.0
    """After so many outcomes an action's own model has half of that part."""


class Head:
    """The two models. Its size grows with the number of actions that were ever updated."""

    def __init__(self, size: int, settings: HeadSettings) -> None:
        """Begin with a head on `size` features that expects every action to succeed half of the time."""
        self._settings = settings
        self._actions: dict[Action, int] = {}
        self._weights = np.zeros((0, size))
        self._squares = np.zeros((0, size))
        self._counts = np.zeros(0)
        self._difficulty = np.zeros(size)
        self._difficulty_squares = np.full(size, 1e-8)
        self._parts: dict[str, int] = {}
        self._ability = np.zeros((0, 2))
        """Ability and slope of each part of an action."""
        self._ability_squares = np.zeros((0, 2))

    @property
    def actions(self) -> tuple[Action, ...]:
        """Return the actions that were ever updated, in the order of their first update."""
        return tuple(self._actions)

    def count(self, action: Action) -> float:
        """Return how many outcomes of an action were seen, each with its weight."""
        place = self._actions.get(action)
        return 0.0 if place is None else float(self._counts[place])

    def logits(self, features: Floats, actions: Sequence[Action]) -> Floats:
        """Return the logit of success of each action: shape (actions,)."""
        shared, own = self._shared(features, actions), np.zeros(len(actions))
        known = [place for place, action in enumerate(actions) if action in self._actions]
        rows = [self._actions[actions[place]] for place in known]
        part = np.zeros(len(actions))
        if rows:
            own[known] = self._weights[rows] @ features
            counts = self._counts[rows]
            part[known] = self._settings.own * counts / (counts + self._settings.patience)
        return part * own + (1.0 - part) * shared

    def update(self, features: Floats, action: Action, target: float, weight: float = 1.0) -> None:
        """Learn that an action came to `target`, which is from 0 to 1, in a situation with these features."""
        row = self._row(action)
        self._update_shared(features, action, target, weight)
        weights, squares = self._weights[row], self._squares[row]
        error = weight * (float(sigmoid(weights @ features)) - target)
        gradient = error * features + self._settings.decay * weights
        squares += gradient**2
        weights -= self._settings.rate * gradient / np.sqrt(squares)
        self._counts[row] += weight

    def _shared(self, features: Floats, actions: Sequence[Action]) -> Floats:
        """Return the logits of the shared model. A part of an action that was never seen counts nothing."""
        difficulty = float(self._difficulty @ features)
        ability = np.zeros((len(actions), 2))
        for row, action in zip(ability, actions, strict=True):
            places = [self._parts[part] for part in _parts(action) if part in self._parts]
            row += self._ability[places].sum(axis=0)
        return ability[:, 0] - (1.0 + ability[:, 1]) * difficulty

    def _update_shared(self, features: Floats, action: Action, target: float, weight: float) -> None:
        places = [self._parts[part] for part in _parts(action)]
        offset, slope = self._ability[places].sum(axis=0)
        difficulty = float(self._difficulty @ features)
        error = weight * (float(sigmoid(offset - (1.0 + slope) * difficulty)) - target)
        rate, decay = self._settings.rate, self._settings.decay
        gradient = -error * (1.0 + slope) * features + decay * self._difficulty
        self._difficulty_squares += gradient**2
        self._difficulty -= rate * gradient / np.sqrt(self._difficulty_squares)
        step = error * np.array((1.0, -difficulty)) + decay * self._ability[places]
        self._ability_squares[places] += step**2
        self._ability[places] -= rate * step / np.sqrt(self._ability_squares[places])

    def _row(self, action: Action) -> int:
        """Return the row of an action, which is appended at its first time."""
        for part in _parts(action):
            if part not in self._parts:
                self._parts[part] = len(self._parts)
                self._ability = np.vstack((self._ability, np.zeros((1, 2))))
                self._ability_squares = np.vstack((self._ability_squares, np.full((1, 2), 1e-8)))
        if action not in self._actions:
            self._actions[action] = len(self._actions)
            empty = np.zeros((1, self._weights.shape[1]))
            self._weights = np.vstack((self._weights, empty))
            self._squares = np.vstack((self._squares, empty + 1e-8))
            self._counts = np.append(self._counts, 0.0)
        return self._actions[action]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all that was learned, by name; `actions` and the parts follow from the order of `self.actions`."""
        return {
            "weights": self._weights,
            "squares": self._squares,
            "counts": self._counts,
            "difficulty": self._difficulty,
            "difficulty_squares": self._difficulty_squares,
            "ability": self._ability,
            "ability_squares": self._ability_squares,
        }

    def restore(self, actions: Sequence[Action], arrays: dict[str, NDArray[Any]]) -> None:
        """Put back what `arrays` returned. Raises ValueError for arrays of another shape, or ones that are missing."""
        for action in actions:
            self._row(action)
        for name, now in self.arrays().items():
            if name not in arrays or arrays[name].shape != now.shape or not np.isfinite(arrays[name]).all():
                raise ValueError(f"the head's {name} should be finite numbers of the shape {now.shape}")
            now[...] = arrays[name]


def _parts(action: Action) -> Iterator[str]:
    yield f"role {action.role}"
    for name in ("persona", "model", "thinking", "mode"):
        if value := getattr(action, name):
            yield f"{name} {value}"
    yield f"action {action}"
