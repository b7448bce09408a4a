"""Decide whether a model may be loaded now, and which idle ones have to go for it. Pure.

Bytes are estimates made before loading. HOT models are never evicted, and neither is one that is in use or loading.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resident:
    """A model that holds memory, or has been promised it. `last_used` orders them; any clock will do."""

    model: str
    bytes: int
    pinned: bool
    in_use: bool
    last_used: float


@dataclass(frozen=True, slots=True)
class Admitted:
    """Load it, after the models in `evicted` (least recently used first) have been stopped."""

    evicted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MustWait:
    """It fits, but only after some of the models that are in use have become idle."""

    short: int


@dataclass(frozen=True, slots=True)
class NeverFits:
    """HOT models, which stay, leave too little of the budget: it lacks `short` bytes."""

    pinned: int
    short: int


Decision = Admitted | MustWait | NeverFits


def admit(wanted: int, residents: Iterable[Resident], budget: int) -> Decision:
    """Decide about a model of `wanted` bytes, within `budget` bytes for all of them. Evicts as few as it takes."""
    held = tuple(residents)
    pinned = sum(resident.bytes for resident in held if resident.pinned)
    if pinned + wanted > budget:
        return NeverFits(pinned, pinned + wanted - budget)
    short = sum(resident.bytes for resident in held) + wanted - budget
    evicted: list[str] = []
    for resident in sorted(held, key=lambda resident: resident.last_used):
        if short <= 0:
            break
        if not resident.pinned and not resident.in_use:
            evicted.append(resident.model)
            short -= resident.bytes
    return Admitted(tuple(evicted)) if short <= 0 else MustWait(short)
