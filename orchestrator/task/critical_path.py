"""Measure a DAG of steps: its longest chain, how late each step may be, and how much ran at once.

`before` names the steps that each step waits for, and `order` is a topological order. Times are in seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_ROUNDING = 1e-9  # slack below this share of the whole is 0: sums in another order differ by about as much


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The chain of dependent steps that takes longest, in order, and how long it takes."""

    steps: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Effort:
    """The compute of a step in seconds, without any waiting."""

    work: float = 0.0  # its share of engine steps, and all of the time of its gates and tools
    alone: float = 0.0  # duration if nothing else had run
    packed: float = 0.0  # its smallest possible share of the engine's time, in the best batch

    def __add__(self, other: "Effort") -> "Effort":
        return Effort(self.work + other.work, self.alone + other.alone, self.packed + other.packed)


@dataclass(frozen=True, slots=True)
class Figures:
    """How well a run used its parallelism. Times are in seconds."""

    work_seconds: float  # of all steps together
    wall_seconds: float
    critical_path: CriticalPath
    concurrency: float  # work_seconds / wall_seconds; 0 if nothing ran
    serial_seconds: float  # steps one after the other, by the step costs of the engines
    # Lower bound for any schedule: the longest chain with each step alone, or the engines' time for all steps in the
    # best batches, whichever is longer.
    best_seconds: float
    bound: float  # serial_seconds / best_seconds, the largest possible speed-up; 0 if nothing ran


def measured_seconds(times: Mapping[str, tuple[float | None, float | None]]) -> dict[str, float]:
    """Return the seconds of each step from its start and end. Steps without both are left out."""
    return {
        step: max(0.0, finished - started)
        for step, (started, finished) in times.items()
        if started is not None and finished is not None
    }


def critical_path(
    before: Mapping[str, Sequence[str]], order: Sequence[str], seconds: Mapping[str, float]
) -> CriticalPath:
    """Return the longest chain. A step without `seconds` takes no time and is not part of the path.

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
    """Return by how many seconds each step may be late without moving the end."""
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
    finish: dict[str, float] = {}  # when each step can finish at the earliest
    latest: dict[str, str | None] = {}  # the step before it that finishes last
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
    """Return the figures of a run. `seconds` include waiting."""
    work, alone = sum(effort.work for effort in efforts.values()), sum(effort.alone for effort in efforts.values())
    # The run itself is one schedule, so the best one is not longer, whatever the step costs say.
    fastest = {
        step: Effort(effort.work, min(effort.alone, seconds.get(step, effort.alone)), effort.packed)
        for step, effort in efforts.items()
    }
    best = min(best_seconds(before, order, fastest), max(0.0, wall_seconds))
    return Figures(
        work_seconds=work,
        wall_seconds=wall_seconds,
        critical_path=critical_path(before, order, seconds),
        concurrency=work / wall_seconds if wall_seconds > 0 else 0.0,
        serial_seconds=alone,
        best_seconds=best,
        bound=alone / best if best > 0 else 0.0,
    )


def best_seconds(before: Mapping[str, Sequence[str]], order: Sequence[str], efforts: Mapping[str, Effort]) -> float:
    chain = critical_path(before, order, {step: effort.alone for step, effort in efforts.items()}).seconds
    return max(chain, sum(effort.packed for effort in efforts.values()))


def critical_steps(main: Sequence[int], sub: Sequence[Sequence[int]]) -> int:
    """Return Σ_t (S_main(t) + max_i S_sub,i(t)), the critical steps of the Kimi K2.5 report.

    `main[t]` counts the steps of the orchestrating agent in stage t, `sub[t][i]` those of its sub-agent i. Missing
    stages count as 0.
    """
    return sum(main) + sum(max(stage, default=0) for stage in sub)


def critical_steps_of(waves: Sequence[Sequence[str]], attempts: Mapping[str, int], planning: int = 0) -> int:
    """Return the critical steps of a run: `planning` calls of the frontdoor, then one stage per wave.

    Each step of a wave is a sub-agent with one step per attempt.
    """
    return critical_steps([planning], [[attempts.get(step, 0) for step in wave] for wave in waves])
