"""Say what a benchmark was to reach and what came out, in the form that all results have. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal and what came out."""

    name: str
    value: float | bool
    goal: str
    met: bool


def at_most(name: str, value: float, goal: float) -> Goal:
    """Return a goal for a value that should be no more than that."""
    return Goal(name, _rounded(value), f"<= {goal:g}", value <= goal)


def at_least(name: str, value: float, goal: float) -> Goal:
    """Return a goal for a value that should be no less than that."""
    return Goal(name, _rounded(value), f">= {goal:g}", value >= goal)


def above(name: str, value: float, goal: float) -> Goal:
    """Return a goal for a value that should be more than that."""
    return Goal(name, _rounded(value), f"> {_rounded(goal):g}", value > goal)


def exactly(name: str, value: float, goal: float) -> Goal:
    """Return a goal for a value that should be this one."""
    return Goal(name, _rounded(value), f"= {goal:g}", value == goal)


def holds(name: str, value: bool) -> Goal:
    """Return a goal for what should be so."""
    return Goal(name, value, "true", value)


def _rounded(value: float) -> float:
    return round(value, 4)
