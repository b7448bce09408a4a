"""Compare the shipped frontdoor's plans with one agent by the clock of a real machine, pair by pair. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, Final

from benchmarks.page import WIDE_BOTH_RIGHT, WIDE_REQUESTS
from benchmarks.parl.figures import drawn_again
from benchmarks.routing.rows import goal_with_interval
from orchestrator.bench.goals import at_most
from orchestrator.memrl.parl.reward import MeasuredPlan
from orchestrator.run.record.report import Report

BOTH_RIGHT: Final = WIDE_BOTH_RIGHT
"""The group of the goal, as on simulated machines: an answer that leaves out most of its parts takes no time."""
GOAL: Final = "wide requests on two real cores"
LONGEST: Final = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockedRun:
    """How a request went by the clock of this machine."""

    result: MeasuredPlan
    wall_seconds: float  # from the acceptance to the end, with planning
    computing_seconds: float  # in which engines computed for the steps of the critical path


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A plan and one agent for a request, one right after the other."""

    request: str
    family: str
    wide: bool  # whether its best plan is, on some machine
    simulated: float  # critical path of the plan as a share of one agent's on the assumed machine with 2 cores
    plan: ClockedRun
    agent: ClockedRun

    @property
    def both_right(self) -> bool:
        return self.plan.result.right and self.agent.result.right

    @property
    def path(self) -> float:
        return self.plan.result.seconds / self.agent.result.seconds

    @property
    def wall(self) -> float:
        return self.plan.wall_seconds / self.agent.wall_seconds


def clocked(report: Report, result: MeasuredPlan) -> ClockedRun:
    """Return how a run went, given what its reward depends on."""
    path = frozenset(report.critical_path.steps)
    usages = [attempt.usage for step in report.steps if step.id in path for attempt in step.attempts]
    computing = sum(usage.prefill_seconds + usage.decode_seconds for usage in usages)
    return ClockedRun(result=result, wall_seconds=report.wall_seconds, computing_seconds=computing)


def rows_of(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """Return the figures of wide requests, of those that both answer correctly, and of each family."""
    groups: dict[str, Callable[[Pair], bool]] = {
        BOTH_RIGHT: lambda pair: pair.wide and pair.both_right,
        WIDE_REQUESTS: lambda pair: pair.wide,
        **{family: _of_family(family) for family in dict.fromkeys(pair.family for pair in pairs)},
    }
    members = {name: [pair for pair in pairs if belongs(pair)] for name, belongs in groups.items()}
    return [_row(name, some) for name, some in members.items() if some]


def _of_family(family: str) -> Callable[[Pair], bool]:
    return lambda pair: pair.family == family


def _row(name: str, pairs: Sequence[Pair]) -> dict[str, Any]:
    paths = _by_request(pairs, lambda pair: pair.path)
    simulated = _by_request(pairs, lambda pair: pair.simulated)
    off = [abs(fmean(expected) / fmean(measured) - 1) for expected, measured in zip(simulated, paths, strict=True)]
    return {
        "group": name,
        "requests": len(paths),
        "pairs": len(pairs),
        "steps": fmean(pair.plan.result.steps for pair in pairs),
        "right": {
            "plan": fmean(pair.plan.result.right for pair in pairs),
            "one agent": fmean(pair.agent.result.right for pair in pairs),
        },
        "path": drawn_again(paths),
        "longest": max(map(fmean, paths)),
        "wall": drawn_again(_by_request(pairs, lambda pair: pair.wall)),
        "simulated_path": fmean(map(fmean, simulated)),
        "simulated_off": median(off),
        "seconds": {"plan": _seconds(pair.plan for pair in pairs), "one agent": _seconds(pair.agent for pair in pairs)},
        "not_computing": {
            "plan": _not_computing([pair.plan for pair in pairs]),
            "one agent": _not_computing([pair.agent for pair in pairs]),
        },
    }


def _by_request(pairs: Iterable[Pair], value: Callable[[Pair], float]) -> list[list[float]]:
    values: dict[str, list[float]] = {}
    for pair in pairs:
        values.setdefault(pair.request, []).append(value(pair))
    return [*values.values()]


def _seconds(runs: Iterable[ClockedRun]) -> float:
    return median(run.result.seconds for run in runs)


def _not_computing(runs: Sequence[ClockedRun]) -> float:
    # the share of the critical paths in which no engine computed for them: the orchestrator's own time
    computing, path = sum(run.computing_seconds for run in runs), sum(run.result.seconds for run in runs)
    return 1 - computing / path


def goal(rows: Sequence[dict[str, Any]], worker: str | None) -> dict[str, Any] | None:
    """Return the goal with what was measured; None if no wide request was answered correctly by both.

    `worker` is the name of the model that computed the worker's answers, unless it is the registry's.
    """
    by_group = {row["group"]: row["path"] for row in rows}
    if BOTH_RIGHT not in by_group:
        return None
    path = by_group[BOTH_RIGHT]
    subject = GOAL if worker is None else f"{GOAL}, {worker} computes"
    measured = at_most(f"{subject}: critical path ÷ one agent's", path["value"], LONGEST)
    return goal_with_interval(measured, path["low"], path["high"])


def completed(
    results: dict[str, Any], name: str, figures: dict[str, Any], new: dict[str, Any] | None
) -> dict[str, Any]:
    """Return published results with the figures and the goal of a worker, in place of earlier ones; others stay."""
    goals = [each for each in results["goals"] if new is None or each["name"] != new["name"]]
    clock = {**results.get("clock", {}), name: figures}
    return {**results, "goals": [*goals, *([] if new is None else [new])], "clock": clock}
