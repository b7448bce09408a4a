"""Measure a DAG of steps: its longest chain, how late each step may be, and how much ran at once.

Everything takes plain mappings, with `before` naming the steps that each step waits for and `order` a topological
order, and is linear in steps and edges. Times are in seconds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.events import RoleRates
from orchestrator.taskir import Step

_ROUNDING = 1e-9
"""Slack below this share of the whole counts as 0: floating-point sums in another order differ by about as much."""


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The chain of dependent steps that takes longest, in order, and how long it takes."""

    steps: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Figures:
    """How a run made use of its parallelism."""

    sum_seconds: float
    """The durations of all steps together."""
    wall_seconds: float
    """How long the run took."""
    critical_path: CriticalPath
    concurrency: float
    """`sum_seconds` divided by `wall_seconds`; 0 where nothing ran."""
    bound: float
    """`sum_seconds` divided by the critical path: how much faster the plan can be than one step at a time (Amdahl's
    law); 0 where nothing ran."""


def predict_step(step: Step, rates: Mapping[str, RoleRates]) -> float:
    """Return how many seconds a step should take: a typical prompt and answer of its role, at the role's rates.

    A role that is not among the `rates` has those of `RoleRates`.
    """
    role = rates.get(step.actor) or RoleRates()
    output = role.output_tokens if step.max_tokens is None else min(role.output_tokens, step.max_tokens)
    return role.prompt_tokens / role.prefill_rate + output / role.decode_rate


def predict_seconds(steps: Iterable[Step], rates: Mapping[str, RoleRates]) -> dict[str, float]:
    """Return how long each step should take. A `foreach` step counts as one child: its children run side by side."""
    return {step.id: predict_step(step, rates) for step in steps}


def measured_seconds(times: Mapping[str, tuple[float | None, float | None]]) -> dict[str, float]:
    """Return how many seconds each step took, given the times of its start and its end. Steps without both are left
    out.
    """
    return {
        step: max(0.0, finished - started)
        for step, (started, finished) in times.items()
        if started is not None and finished is not None
    }


def critical_path(
    before: Mapping[str, Sequence[str]], order: Sequence[str], seconds: Mapping[str, float]
) -> CriticalPath:
    """Return the longest chain. A step without `seconds` takes no time and is not listed as a part of the path.

    Of equally long chains it is the one whose steps, from the last one backwards, come first in `order`.
    """
    finish, latest = _earliest_finish(before, order, seconds)
    if not order:
        return CriticalPath((), 0.0)
    last: str | None = max(order, key=finish.__getitem__)
    total = finish[last] if last is not None else 0.0
    chain: list[str] = []
    while last is not None:
        if last in seconds:
            chain.append(last)
        last = latest[last]
    return CriticalPath(tuple(reversed(chain)), total)


def slack(before: Mapping[str, Sequence[str]], order: Sequence[str], seconds: Mapping[str, float]) -> dict[str, float]:
    """Return by how much each step may finish later than it could without moving the end; 0 on the critical path."""
    finish, _ = _earliest_finish(before, order, seconds)
    end = max(finish.values(), default=0.0)
    late = dict.fromkeys(order, end)
    for step in reversed(order):
        start = late[step] - seconds.get(step, 0.0)
        for earlier in before[step]:
            late[earlier] = min(late[earlier], start)
    rounding = _ROUNDING * end
    return {step: 0.0 if late[step] - finish[step] <= rounding else late[step] - finish[step] for step in order}


def _earliest_finish(
    before: Mapping[str, Sequence[str]], order: Sequence[str], seconds: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, str | None]]:
    """Return when each step is done at the earliest, and which of those it waits for is done last."""
    finish: dict[str, float] = {}
    latest: dict[str, str | None] = {}
    for step in order:
        last = max(before[step], key=finish.__getitem__, default=None)
        latest[step] = last
        finish[step] = (0.0 if last is None else finish[last]) + seconds.get(step, 0.0)
    return finish, latest


def figures(
    before: Mapping[str, Sequence[str]], order: Sequence[str], seconds: Mapping[str, float], wall_seconds: float
) -> Figures:
    """Return the figures of a run whose steps took `seconds` and which took `wall_seconds` in all."""
    total = sum(seconds.values())
    path = critical_path(before, order, seconds)
    return Figures(
        sum_seconds=total,
        wall_seconds=wall_seconds,
        critical_path=path,
        concurrency=total / wall_seconds if wall_seconds > 0 else 0.0,
        bound=total / path.seconds if path.seconds > 0 else 0.0,
    )


def critical_steps(main: Sequence[int], sub: Sequence[Sequence[int]]) -> int:
    """Return Σ_t (S_main(t) + max_i S_sub,i(t)), the critical steps of the Kimi K2.5 report.

    `main[t]` is how many steps the orchestrating agent takes in stage t, and `sub[t][i]` how many its sub-agent i
    takes in it. Of what runs side by side only the longest counts. Stages that one of the two lacks count as 0.
    """
    return sum(main) + sum(max(stage, default=0) for stage in sub)


def critical_steps_of(waves: Sequence[Sequence[str]], attempts: Mapping[str, int], planning: int = 0) -> int:
    """Return the critical steps of a run: `planning` calls of the frontdoor, then a stage for each wave.

    Each step of a wave is a sub-agent that takes as many steps as it had attempts; without any it took none.
    """
    return critical_steps([planning], [[attempts.get(step, 0) for step in wave] for wave in waves])
