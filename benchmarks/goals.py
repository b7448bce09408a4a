"""The goals of a benchmark and their results, in the form in which they are written with all results. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal and its result."""

    name: str
    value: float | bool
    goal: str
    """The accepted values, such as "<= 0.02"."""
    met: bool


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
