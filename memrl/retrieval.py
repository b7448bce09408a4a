"""Estimate what an action is worth from similar episodes: MemRL's two phases, and a shrunk mean of what they choose.

Phase one takes the episodes whose similarity is above a threshold. Phase two ranks them by
(1 - weight) * z(similarity) + weight * z(Q) (MemRL: self-evolving agents via runtime reinforcement learning on
episodic memory, 2026). The paper shows the chosen episodes to a model; here they vote on an action's worth.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memrl.episodes import Action, Neighbour, Neighbourhood

Floats = NDArray[np.float64]


VOICES: Final = 10
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
    """How many episodes of similarity 1 that is worth."""
    spoke: int
    """How many episodes spoke."""
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
    prior: Callable[[Action], float],
    settings: RetrievalSettings,
) -> Mapping[Action, Retrieved]:
    """Return what neighbours say about each action. An action without any has its prior, and a support of 0."""
    around = neighbours if isinstance(neighbours, Neighbourhood) else Neighbourhood.of(neighbours)
    heard = _heard(around, actions, settings)
    own = heard.own
    weights = around.counts[own] * np.exp(-settings.sharpness * (1.0 - around.similarities[own]))
    places = np.repeat(np.arange(len(actions)), heard.spoke)
    support = np.bincount(places, weights, len(actions))
    sums = np.bincount(places, weights * around.q[own], len(actions))
    priors = [prior(action) for action in actions]
    whole = support + settings.shrinkage
    values = (sums + settings.shrinkage * np.array(priors)) / np.where(whole > 0, whole, 1.0)
    columns = (around.ids[own], around.similarities[own], around.q[own], weights / whole[places])
    told = [column.tolist() for column in columns]
    found: dict[Action, Retrieved] = {}
    end = 0
    for action, before, value, known, spoke in zip(
        actions, priors, values.tolist(), support.tolist(), heard.spoke.tolist(), strict=True
    ):
        begin, end = end, end + spoke
        kept = slice(begin, min(end, begin + VOICES))
        voices = tuple(map(Voice, *(column[kept] for column in told)))
        found[action] = Retrieved(value if spoke else before, known, spoke, voices)
    return found


@dataclass(frozen=True, slots=True)
class _Heard:
    """Which neighbours speak, sorted by the action that they speak for, the most similar one first."""

    own: NDArray[np.intp]
    spoke: NDArray[np.intp]
    """How many speak for each action: shape (actions,)."""


def _heard(around: Neighbourhood, actions: Sequence[Action], settings: RetrievalSettings) -> _Heard:
    """Return the neighbours that both phases choose for each action."""
    wanted = {action: place for place, action in enumerate(actions)}
    numbers = np.unique(around.actions)
    asked = np.array([wanted.get(around.named[number], -1) for number in numbers.tolist()], dtype=np.intp)
    group = asked[np.searchsorted(numbers, around.actions)] if len(numbers) else asked
    able = np.flatnonzero((group >= 0) & (around.similarities > settings.threshold))
    sorted_by = able[np.lexsort((-around.similarities[able], group[able]))]
    counts = np.bincount(group[sorted_by], minlength=len(actions))
    ends = np.cumsum(counts)
    rank = np.arange(len(sorted_by)) - np.repeat(ends - counts, counts)
    kept = sorted_by[rank < settings.candidates]
    counts = np.minimum(counts, settings.candidates)
    if len(counts) and counts.max() > settings.chosen:
        return _second_phase(around, kept, counts, settings)
    return _Heard(kept, counts)


def _second_phase(
    around: Neighbourhood, own: NDArray[np.intp], counts: NDArray[np.intp], settings: RetrievalSettings
) -> _Heard:
    """Return what the second phase leaves of the neighbours of each action."""
    groups = np.split(own, np.cumsum(counts)[:-1])
    chosen = [
        group[np.sort(two_phase(around.similarities[group], around.q[group], settings))]
        if len(group) > settings.chosen
        else group
        for group in groups
    ]
    return _Heard(np.concatenate(chosen), np.array([len(group) for group in chosen], dtype=np.intp))
