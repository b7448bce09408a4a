"""Estimate what an action is worth from similar episodes: MemRL's two phases, and a shrunk mean of what they choose.

Phase one takes the episodes whose similarity is above a threshold. Phase two ranks them by
(1 - weight) * z(similarity) + weight * z(Q) (MemRL: self-evolving agents via runtime reinforcement learning on
episodic memory, 2026). The paper shows the chosen episodes to a model; here they vote on an action's worth.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from memrl.episodes import Action, Neighbour

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


@dataclass(frozen=True, slots=True)
class Voice:
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


def two_phase(
    similarities: Floats, values: Floats, settings: RetrievalSettings, *, ranked: bool = True
) -> NDArray[np.intp]:
    """Return the places of the episodes that both phases choose, the highest score first if they are to be `ranked`.

    `similarities` and `values` (Q) have one number for each episode of one action. Pure.
    """
    above = np.flatnonzero(similarities > settings.threshold)
    first = above[np.argsort(-similarities[above], kind="stable")][: settings.candidates]
    if len(first) <= settings.chosen and not ranked:
        return first
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
    grouped: dict[Action, list[Neighbour]] = {action: [] for action in actions}
    for neighbour in neighbours:
        if (group := grouped.get(neighbour.episode.action)) is not None:
            group.append(neighbour)
    return {action: _estimate(group, prior(action), settings) for action, group in grouped.items()}


def _estimate(neighbours: Sequence[Neighbour], prior: float, settings: RetrievalSettings) -> Retrieved:
    if not neighbours:
        return Retrieved(prior, 0.0, 0, ())
    similarities = np.array([one.similarity for one in neighbours])
    values = np.array([one.episode.q for one in neighbours])
    places = two_phase(similarities, values, settings, ranked=False)
    counts = np.array([one.episode.count for one in neighbours], dtype=float)[places]
    near, worth = similarities[places], values[places]
    weights = counts * np.exp(-settings.sharpness * (1.0 - near))
    support = float(weights.sum())
    whole = support + settings.shrinkage
    value = (float(weights @ worth) + settings.shrinkage * prior) / whole
    order = np.argsort(-near, kind="stable")[:VOICES]
    voices = tuple(
        Voice(neighbours[place].episode.id, neighbours[place].similarity, neighbours[place].episode.q, weight / whole)
        for place, weight in zip(places[order].tolist(), weights[order].tolist(), strict=True)
    )
    return Retrieved(value, support, len(places), voices)
