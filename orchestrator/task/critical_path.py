"""Measure a DAG of steps: its longest chain, how late each step may be, and how much ran at once.

Everything takes plain mappings, with `before` naming the steps that each step waits for and `order` a topological
order, and is linear in steps and edges. Times are in seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

_ROUNDING = 1e-9
"""Slack below this share of the whole counts as 0: floating-point sums in another order differ by about as much."""


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The chain of dependent steps that takes longest, in order, and how long it takes."""

    steps: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Effort:
    """What a step computes, or takes of others that compute. Waiting is no part of it. Times are in seconds."""

    work: float = 0.0
    """Its own share: of the time of engine steps, which sequences share, and all of what its gates and tools took."""
    alone: float = 0.0
    """How long it would have taken if nothing else had run."""
    packed: float = 0.0
    """The least share of an engine's time that it can take, beside as many others as is best."""

    def __add__(self, other: "Effort") -> "Effort":
        return Effort(self.work + other.work, self.alone + other.alone, self.packed + other.packed)


@dataclass(frozen=True, slots=True)
class Figures:
    """How a run made use of its parallelism. Times are in seconds."""

    work_seconds: float
    """The work of all steps together."""
    wall_seconds: float
    """How long the run took."""
    critical_path: CriticalPath
    concurrency: float
    """`work_seconds` divided by `wall_seconds`; 0 where nothing ran."""
    serial_seconds: float
    """How long the steps would have taken one after the other, by the step costs of the engines."""
    best_seconds: float
    """What the best schedule would have taken at least: the longest chain of steps, each as fast as it is alone, or the
    engines' time for all steps if they are packed as well as can be, whichever is longer."""
    bound: float
    """`serial_seconds` divided by `best_seconds`: how many times faster than one by one any schedule can be at most; 0
    where nothing ran."""


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
    before: Mapping[str, Sequence[str]],
    order: Sequence[str],
    seconds: Mapping[str, float],
    efforts: Mapping[str, Effort],
    wall_seconds: float,
) -> Figures:
    """Return the figures of a run which took `wall_seconds`. Its steps took `seconds`, from start to end, waiting
    included, and their work was `efforts`.

    The run itself is one schedule, so the best one takes no longer than it, whatever the step costs say: neither a step
    nor the whole.
    """
    total = sum(efforts.values(), Effort())
    fastest = {
        step: replace(effort, alone=min(effort.alone, seconds.get(step, effort.alone)))
        for step, effort in efforts.items()
    }
    best = min(best_seconds(before, order, fastest), max(0.0, wall_seconds))
    return Figures(
        work_seconds=total.work,
        wall_seconds=wall_seconds,
        critical_path=critical_path(before, order, seconds),
        concurrency=total.work / wall_seconds if wall_seconds > 0 else 0.0,
        serial_seconds=total.alone,
        best_seconds=best,
        bound=total.alone / best if best > 0 else 0.0,
    )


def best_seconds(before: Mapping[str, Sequence[str]], order: Sequence[str], efforts: Mapping[str, Effort]) -> float:
    """Return what the best schedule takes at least, see `Figures.best_seconds`."""
    chain = critical_path(before, order, {step: effort.alone for step, effort in efforts.items()}).seconds
    return max(chain, sum(effort.packed for effort in efforts.values()))


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
