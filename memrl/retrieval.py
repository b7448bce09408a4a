"""Estimate the worth of actions from similar episodes, by MemRL's two phases and a shrunk mean.

Phase one takes episodes above a similarity threshold, phase two ranks them by (1 - weight) * z(similarity) + weight *
z(Q) (MemRL: self-evolving agents via runtime reinforcement learning on episodic memory, 2026). The paper shows the
chosen episodes to a model; here they vote.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator.memrl.episodes import Action, Neighbour, Neighbourhood

Floats = NDArray[np.float64]


VOICES: Final = 5  # episodes named in an answer at most


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalSettings:
    threshold: float = 0.1  # least similarity of an episode (the paper's delta)
    candidates: int = 100  # episodes of an action that phase one keeps, most similar first (k1)
    chosen: int = 50  # of those, episodes that phase two keeps (k2)
    weight: float = 0.2  # weight of Q in phase two (lambda); similarity has the rest
    normalise: bool = True  # compare z-scores in phase two, not the numbers themselves
    sharpness: float = 4.0  # an episode weighs exp(-sharpness * (1 - similarity))
    shrinkage: float = 1.0  # episodes of similarity 1 that the prior is worth


class Voice(NamedTuple):
    episode: int
    similarity: float
    q: float
    weight: float  # part in the estimate, from 0 to 1; the rest is the prior's


@dataclass(frozen=True, slots=True)
class Retrieved:
    value: float  # expected reward, shrunk to the prior if few episodes speak
    support: float  # how many outcomes in the same situation that is worth
    spoke: int  # episodes that took part
    voices: tuple[Voice, ...]  # the nearest ones, VOICES at most


def two_phase(similarities: Floats, values: Floats, settings: RetrievalSettings) -> NDArray[np.intp]:
    """Return the places of the episodes that both phases keep, highest score first.

    `similarities` and `values` (Q) have one number for each episode of one action.
    """
    above = np.flatnonzero(similarities > settings.threshold)
    first = above[np.argsort(-similarities[above], kind="stable")][: settings.candidates]
    near, worth = similarities[first], values[first]
    if settings.normalise:
        near, worth = _z(near), _z(worth)
    score = (1.0 - settings.weight) * near + settings.weight * worth
    return first[np.argsort(-score, kind="stable")][: settings.chosen]


def _z(numbers: Floats) -> Floats:
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
    """Return what neighbours say about each action. An action without neighbours has its prior and a support of 0."""
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
    named_numbers = zip(
        around.ids[named].tolist(),
        around.similarities[named].tolist(),
        around.q[named].tolist(),
        spoken.tolist(),
        strict=True,
    )
    voices = map(Voice._make, named_numbers)
    return [
        Retrieved(value if spoke else before, worth, spoke, tuple(islice(voices, min(spoke, VOICES))))
        for before, value, worth, spoke in zip(
            priors, values.tolist(), support.tolist(), heard.spoke.tolist(), strict=True
        )
    ]


@dataclass(frozen=True, slots=True)
class _Heard:
    """The neighbours that speak, sorted by their action, then most similar first."""

    own: NDArray[np.intp]
    places: NDArray[np.intp]  # the action that each speaks for
    rank: NDArray[np.intp]  # how many more similar ones speak for the same action
    spoke: NDArray[np.intp]  # how many speak for each action: shape (actions,)

    @classmethod
    def of(cls, own: NDArray[np.intp], places: NDArray[np.intp], count: int) -> "_Heard":
        # `own` is sorted by `places`
        spoke = np.bincount(places, minlength=count)
        begins = spoke.cumsum() - spoke
        return cls(own, places, np.arange(len(own)) - begins[places], spoke)

    def only(self, mask: NDArray[np.bool_]) -> "_Heard":
        return self.of(self.own[mask], self.places[mask], len(self.spoke))


def _heard(around: Neighbourhood, actions: Sequence[Action], settings: RetrievalSettings) -> _Heard:
    place_by_action = {action: place for place, action in enumerate(actions)}
    occurrences = np.bincount(around.actions)
    numbers = np.flatnonzero(occurrences)
    place_of = np.full(len(occurrences), -1)
    place_of[numbers] = [place_by_action.get(around.named[number], -1) for number in numbers.tolist()]
    group = place_of[around.actions]
    able = np.flatnonzero((group >= 0) & (around.similarities > settings.threshold))
    able = able[np.lexsort((-around.similarities[able], group[able]))]
    heard = _Heard.of(able, group[able], len(actions))
    most = int(heard.spoke.max(initial=0))
    if most > settings.candidates:
        heard = heard.only(heard.rank < settings.candidates)
    return _second_phase(around, heard, settings) if most > settings.chosen else heard


def _second_phase(around: Neighbourhood, heard: _Heard, settings: RetrievalSettings) -> _Heard:
    mask = np.ones(len(heard.own), dtype=np.bool_)
    end = 0
    for spoke in heard.spoke.tolist():
        begin, end = end, end + spoke
        if spoke > settings.chosen:
            group = heard.own[begin:end]
            mask[begin:end] = False
            mask[begin + two_phase(around.similarities[group], around.q[group], settings)] = True
    return heard.only(mask)
