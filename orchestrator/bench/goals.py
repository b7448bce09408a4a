"""The goals of a benchmark and their results, in the form in which they are written with all results. Pure."""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal and its result."""

    name: str
    value: float | bool
    goal: str  # the accepted values, such as "<= 0.02"
    met: bool


State = Literal["met", "open", "missed", "not measured"]
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "=": operator.eq
}  # fmt: skip


def state(value: float | bool | None, goal: str, *, met: bool) -> State:
    """Return how far a goal is reached: `met` by the value itself, or `open` if only its 95 % interval reaches it.

    `met` is what the benchmark has written, which judges by the better end of the interval if there is one. A goal that
    is no comparison with a number is met or missed as written. One without a value is not measured.
    """
    if value is None:
        return "not measured"
    comparison, _, limit = goal.partition(" ")
    reaches = _COMPARISONS.get(comparison)
    if not met or reaches is None:
        return "met" if met else "missed"
    try:
        return "met" if reaches(value, float(limit)) else "open"
    except ValueError:
        return "met"


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
