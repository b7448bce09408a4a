"""Choose which prefixes are worth keeping on disk. Pure: no clock, no files.

See `docs/adr/0039-prompts-outlast-engines.md`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

LEAST_TOKENS = 200  # Fewer tokens of a prompt are computed again.
# Prompts come again within hours or days, if at all: a prefix that nobody has used for a day is worth half.
HALF_LIFE_SECONDS = 86_400.0
# A file that was not used for this long is removed, whatever its value: it holds what somebody wrote.
LONGEST_UNUSED_SECONDS = 30 * 86_400.0

_Name = TypeVar("_Name")


@dataclass(frozen=True, slots=True)
class KeptPrefix:
    """A stored prefix."""

    size: int  # bytes
    seconds: float  # to compute it again
    used: float  # when it was last used, in seconds since the epoch


def pays(tokens: int, compute_seconds: float, read_seconds: float) -> bool:
    """Return whether to read `tokens` tokens of a prompt instead of computing them, and so to write them before."""
    return tokens >= LEAST_TOKENS and compute_seconds > read_seconds


def to_remove(prefixes: Mapping[_Name, KeptPrefix], most_bytes: int, now: float) -> list[_Name]:
    """Return which prefixes to remove so that the others take at most `most_bytes`, the first one first.

    Those that save the fewest seconds per byte go first. Values within a factor of two count as equal, since both the
    seconds and the chance of another use are estimates. Of these the least recently used goes first.
    """
    total = sum(prefix.size for prefix in prefixes.values())
    removed: list[_Name] = []
    for name, prefix in sorted(prefixes.items(), key=lambda item: _rank(item[1], now)):
        if total <= most_bytes and not _is_forgotten(prefix, now):
            break
        removed.append(name)
        total -= prefix.size
    return removed


def _is_forgotten(prefix: KeptPrefix, now: float) -> bool:
    return now - prefix.used > LONGEST_UNUSED_SECONDS


def _rank(prefix: KeptPrefix, now: float) -> tuple[bool, int, float]:
    # A factor of two is one step.
    value = math.log2(max(prefix.seconds, 1e-9) / max(prefix.size, 1))
    days = max(0.0, now - prefix.used) / HALF_LIFE_SECONDS
    return not _is_forgotten(prefix, now), math.floor(value - days), prefix.used
