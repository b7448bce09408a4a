"""Share the reward of a run among its steps, along the graph of which step used which output. Pure.

TD(lambda): Sutton & Barto, 12.1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCredit:
    reward: float | None  # its own reward; None if nothing has checked it
    value: float  # the Q of the choice
    used_by: tuple[str, ...] = ()  # the steps that read its output


def plain(steps: Mapping[str, StepCredit], end: float) -> dict[str, float]:
    """Return each step's own reward, or else the run's (`end`)."""
    return {name: end if step.reward is None else step.reward for name, step in steps.items()}


def td_lambda(
    steps: Mapping[str, StepCredit], end: float, *, trace: float = 0.9, discount: float = 1.0, own: float = 0.8
) -> dict[str, float]:
    """Return the lambda-return of each step.

    What follows a step returns the mean, over the steps that used it, of (1 - trace) * value + trace * return,
    discounted; `end` if no step used it. A step with a reward of its own gets `own` of it and the rest from what
    follows. Trace 0 looks one step ahead (TD(0)), trace 1 to the end of the run (Monte Carlo). Raises ValueError for a
    cycle or an unknown step.
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
