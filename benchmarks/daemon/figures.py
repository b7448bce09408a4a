"""Turn samples into figures. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.goals import Goal


@dataclass(frozen=True, slots=True)
class Part:
    """What one part has measured."""

    figures: dict[str, Any]
    goals: list[Goal] = field(default_factory=list)


def percentile(samples: Sequence[float], percent: float) -> float:
    """Return the smallest sample that so many percent of all do not exceed (the nearest rank)."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Return what times in seconds are like, in milliseconds."""
    named = {"p50_ms": 50, "p95_ms": 95, "p99_ms": 99, "max_ms": 100}
    told = {name: round(1000 * percentile(seconds, percent), 3) for name, percent in named.items()}
    return {"samples": len(seconds), **told}


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return by how much y grows with x, by least squares; 0 for fewer than two different x."""
    count = len(points)
    if len({x for x, _ in points}) < 2:
        return 0.0
    mean_x, mean_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    covariance = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return covariance / sum((x - mean_x) ** 2 for x, _ in points)
