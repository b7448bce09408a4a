"""Share the end of a run among the steps that led to it, along the graph of which step used what. Pure.

Plain credit gives each step its own reward where a gate or checker has given one, and otherwise the run's. TD(lambda)
(Sutton & Barto, 12.1) takes what followed a step into account as well: what the steps that used its output came to.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCredit:
    """What is known of a step when its run has ended."""

    reward: float | None
    """Its own reward; None where nothing has checked it."""
    value: float
    """What it was expected to bring when it was chosen: the Q of the choice."""
    used_by: tuple[str, ...] = ()
    """The steps that read its output."""


def plain(steps: Mapping[str, StepCredit], end: float) -> dict[str, float]:
    """Return each step's own reward, or the run's (`end`) where it has none."""
    return {name: end if step.reward is None else step.reward for name, step in steps.items()}


def td_lambda(
    steps: Mapping[str, StepCredit], end: float, *, trace: float = 0.9, discount: float = 1.0, own: float = 0.8
) -> dict[str, float]:
    """Return the lambda-return of each step.

    The return from what follows a step is the mean over the steps that used it of (1 - trace) * their value + trace *
    their return, discounted; for a step that nobody used it is the run's reward, `end`. A step with a reward of its
    own gets `own` of that and the rest from what follows. With trace 0 only the next steps count (TD(0)), with trace 1
    the whole rest of the run (Monte Carlo). Raises ValueError for a cycle or an unknown step.
    """
    returns: dict[str, float] = {}
    for name in _last_first(steps):
        step = steps[name]
        later = [(1 - trace) * steps[after].value + trace * returns[after] for after in step.used_by]
        following = discount * sum(later) / len(later) if later else end
        returns[name] = following if step.reward is None else own * step.reward + (1 - own) * following
    return {name: returns[name] for name in steps}


def _last_first(steps: Mapping[str, StepCredit]) -> Sequence[str]:
    unknown = sorted({after for step in steps.values() for after in step.used_by} - steps.keys())
    if unknown:
        raise ValueError(f"a step is used by {', '.join(unknown)}; accepted: {', '.join(steps)}")
    try:
        return list(TopologicalSorter({name: step.used_by for name, step in steps.items()}).static_order())
    except CycleError as error:
        raise ValueError(f"steps use each other's output in a circle: {' -> '.join(error.args[1])}") from error
