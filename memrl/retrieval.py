"""Estimate what an action is worth from similar episodes: MemRL's two phases, and a shrunk mean of what they choose.

Phase one takes the episodes whose similarity is above a threshold. Phase two ranks them by
(1 - weight) * z(similarity) + weight * z(Q) (MemRL: self-evolving agents via runtime reinforcement learning on
episodic memory, 2026). The paper shows the chosen episodes to a model; here they vote on an action's worth.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memrl.episodes import Action, Neighbour, Neighbourhood

Floats = NDArray[np.float64]


VOICES: Final = 5
"""How many of the episodes that spoke are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalSettings:
    """How similar episodes are chosen and weighed."""

    threshold: float = 0.1
    """The similarity above which an episode counts at all (the paper's delta)."""
    candidates: int = 100
    """How many episodes phase one keeps for each action, the most similar first (k1)."""
    chosen: int = 50
    """How many of them phase two keeps (k2)."""
    weight: float = 0.2
    """The weight of Q in phase two (lambda); that of the similarity is 1 minus it."""
    normalise: bool = True
    """Whether phase two compares z-scores, and not the numbers themselves."""
    sharpness: float = 4.0
    """How fast an episode's voice falls with its distance: exp(-sharpness * (1 - similarity))."""
    shrinkage: float = 1.0
    """How many episodes of similarity 1 the prior is worth."""


class Voice(NamedTuple):
    """An episode that spoke for or against an action."""

    episode: int
    similarity: float
    q: float
    weight: float
    """Its part in the estimate, from 0 to 1; the rest is the prior's."""


@dataclass(frozen=True, slots=True)
class Retrieved:
    """What similar episodes say about an action."""

    value: float
    """The expected reward, shrunk to the prior where few episodes speak."""
    support: float
    """How many outcomes in the same situation that is worth."""
    spoke: int
    """How many episodes were similar enough to take part in the estimate."""
    voices: tuple[Voice, ...]
    """The most similar ones of them, the nearest first: VOICES at most."""


def two_phase(similarities: Floats, values: Floats, settings: RetrievalSettings) -> NDArray[np.intp]:
    """Return the places of the episodes that both phases choose, the highest score first.

    `similarities` and `values` (Q) have one number for each episode of one action. Pure.
    """
    above = np.flatnonzero(similarities > settings.threshold)
    first = above[np.argsort(-similarities[above], kind="stable")][: settings.candidates]
    near, worth = similarities[first], values[first]
    if settings.normalise:
        near, worth = _z(near), _z(worth)
    score = (1.0 - settings.weight) * near + settings.weight * worth
    return first[np.argsort(-score, kind="stable")][: settings.chosen]


def _z(numbers: Floats) -> Floats:
    """Return z-scores; zeros if all numbers are the same."""
    if not len(numbers):
        return numbers
    away = numbers - float(numbers.sum()) / len(numbers)
    deviation = (float(away @ away) / len(numbers)) ** 0.5
    return away / deviation if deviation > 1e-9 else np.zeros_like(numbers)


def estimate(
    neighbours: Sequence[Neighbour],
    actions: Sequence[Action],
    priors: Sequence[float],
    settings: RetrievalSettings,
) -> list[Retrieved]:
    """Return what neighbours say about each of the actions. One without any has its prior, and a support of 0."""
    around = neighbours if isinstance(neighbours, Neighbourhood) else Neighbourhood.of(neighbours)
    heard = _heard(around, actions, settings)
    own, places = heard.own, heard.places
    weights = around.weights[own] * np.exp(-settings.sharpness * (1.0 - around.similarities[own]))
    support = np.bincount(places, weights, len(actions))
    sums = np.bincount(places, weights * around.q[own], len(actions))
    whole = support + settings.shrinkage
    values = (sums + settings.shrinkage * np.array(priors)) / np.where(whole > 0, whole, 1.0)
    first = np.flatnonzero(heard.rank < VOICES)
    named, spoken = own[first], weights[first] / whole[places[first]]
    told = zip(
        around.ids[named].tolist(),
        around.similarities[named].tolist(),
        around.q[named].tolist(),
        spoken.tolist(),
        strict=True,
    )
    voices = map(Voice._make, told)
    return [
        Retrieved(value if spoke else before, known, spoke, tuple(islice(voices, min(spoke, VOICES))))
        for before, value, known, spoke in zip(
            priors, values.tolist(), support.tolist(), heard.spoke.tolist(), strict=True
        )
    ]


@dataclass(frozen=True, slots=True)
class _Heard:
    """Which neighbours speak, sorted by the action that they speak for, the most similar one first."""

    own: NDArray[np.intp]
    places: NDArray[np.intp]
    """For which of the actions each of them speaks."""
    rank: NDArray[np.intp]
    """How many more similar ones speak for the same action."""
    spoke: NDArray[np.intp]
    """How many speak for each action: shape (actions,)."""

    @classmethod
    def of(cls, own: NDArray[np.intp], places: NDArray[np.intp], count: int) -> "_Heard":
        """Return those `own`, which are sorted by the place of their action, of which there are `count`."""
        spoke = np.bincount(places, minlength=count)
        begins = spoke.cumsum() - spoke
        return cls(own, places, np.arange(len(own)) - begins[places], spoke)

    def only(self, kept: NDArray[np.bool_]) -> "_Heard":
        """Return some of them, given by a mask."""
        return self.of(self.own[kept], self.places[kept], len(self.spoke))


def _heard(around: Neighbourhood, actions: Sequence[Action], settings: RetrievalSettings) -> _Heard:
    """Return the neighbours that both phases choose for each action."""
    wanted = {action: place for place, action in enumerate(actions)}
    seen = np.bincount(around.actions)
    numbers = np.flatnonzero(seen)
    place_of = np.full(len(seen), -1)
    place_of[numbers] = [wanted.get(around.named[number], -1) for number in numbers.tolist()]
    group = place_of[around.actions]
    able = np.flatnonzero((group >= 0) & (around.similarities > settings.threshold))
    able = able[np.lexsort((-around.similarities[able], group[able]))]
    heard = _Heard.of(able, group[able], len(actions))
    most = int(heard.spoke.max(initial=0))
    if most > settings.candidates:
        heard = heard.only(heard.rank < settings.candidates)
    return _second_phase(around, heard, settings) if most > settings.chosen else heard


def _second_phase(around: Neighbourhood, heard: _Heard, settings: RetrievalSettings) -> _Heard:
    """Return what the second phase leaves of the neighbours of each action."""
    kept = np.ones(len(heard.own), dtype=np.bool_)
    end = 0
    for spoke in heard.spoke.tolist():
        begin, end = end, end + spoke
        if spoke > settings.chosen:
            group = heard.own[begin:end]
            kept[begin:end] = False
            kept[begin + two_phase(around.similarities[group], around.q[group], settings)] = True
    return heard.only(kept)
