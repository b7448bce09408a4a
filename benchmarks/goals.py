"""The goals of a benchmark and their results, in the form in which they are written with all results. Pure."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal and its result."""

    name: str
    value: float | bool
    goal: str
    """The accepted values, such as "<= 0.02"."""
    met: bool


def wilson(right: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """Return the score interval of the share `right / count` (Wilson 1927); `z` is the normal quantile."""
    share = right / count
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    spread = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, centre - spread), min(1.0, centre + spread)


def at_most(name: str, value: float, goal: float) -> Goal:
    """Return the goal that `value` is at most `goal`."""
    return Goal(name, _rounded(value), f"<= {goal:g}", value <= goal)


def at_least(name: str, value: float, goal: float) -> Goal:
    """Return the goal that `value` is at least `goal`."""
    return Goal(name, _rounded(value), f">= {goal:g}", value >= goal)


def above(name: str, value: float, goal: float) -> Goal:
    """Return the goal that `value` is greater than `goal`."""
    return Goal(name, _rounded(value), f"> {_rounded(goal):g}", value > goal)


def exactly(name: str, value: float, goal: float) -> Goal:
    """Return the goal that `value` equals `goal`."""
    return Goal(name, _rounded(value), f"= {goal:g}", value == goal)


def holds(name: str, value: bool) -> Goal:
    """Return the goal that `value` is true."""
    return Goal(name, value, "true", value)


def _rounded(value: float) -> float:
    return round(value, 4)
