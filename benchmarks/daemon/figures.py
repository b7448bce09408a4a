"""Compute percentiles and slopes of samples, without I/O."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.bench.goals import Goal


@dataclass(frozen=True, slots=True)
class PartResult:
    """What one part of the benchmark has measured."""

    figures: dict[str, Any]
    goals: list[Goal] = field(default_factory=list)


def percentile(samples: Sequence[float], percent: float) -> float:
    """Return the percentile by nearest rank: the smallest sample that `percent` of all samples do not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Return percentiles and the maximum of times in seconds, in milliseconds, by name."""
    percents = {"p50_ms": 50, "p95_ms": 95, "p99_ms": 99, "max_ms": 100}
    percentiles = {name: round(1000 * percentile(seconds, percent), 3) for name, percent in percents.items()}
    return {"samples": len(seconds), **percentiles}


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of a least-squares line through (x, y); 0 if there are fewer than two different x."""
    count = len(points)
    if len({x for x, _ in points}) < 2:
        return 0.0
    mean_x, mean_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    covariance = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return covariance / sum((x - mean_x) ** 2 for x, _ in points)
