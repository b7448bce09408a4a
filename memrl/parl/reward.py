"""Compute the reward of a plan from how its run went. Pure.

r = s · (r_parallel + w · r_finish) + r_perf, after the parallel-agent reward of the Kimi K2.5 report. s falls to 0
while the policy learns. r_parallel is the share of the critical path that running in parallel saved, r_finish the share
of steps whose output was used, and r_perf how right the answer is, less the price of time on the critical path.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Literal

from orchestrator.memrl.reward import Stage, parallel_share
from orchestrator.run.record.report import Report

LEAST_DEVIATION = 1e-6
SHAPED = 0.75  # the share of a training's updates in which s is above 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPlan:
    """What the reward of a plan depends on."""

    score: float  # how right the answer is, from 0 to 1
    seconds: float  # the critical path on the machine; more than 0 if any step has run
    serial_seconds: float  # what its steps take one after the other
    critical_steps: int  # steps one after the other, by the longest of each wave
    width: int  # the most steps that can run at a time
    steps: int
    used: int  # steps that are done and whose output another step or the user got
    tokens: int = 0  # read and written by all steps
    removable: float | None = None  # share of steps without which the answer is as right; None if that was not tried

    @property
    def right(self) -> bool:
        return self.score >= 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardSettings:
    """Which parts the reward has. The stage counts updates of the policy."""

    stage: Stage = field(default_factory=lambda: Stage(first=0.1, outcomes=200, finish=0.5))
    parallel: bool = True
    cost: Literal["seconds", "steps"] = "seconds"  # of the critical path
    price: float = 0.5
    """What a right answer loses if its critical path is twice as long as that of the best plan. 0: time is free."""
    annealed: bool = True


def stage_over(updates: int) -> Stage:
    """Return the stage of a training with this number of updates, the last quarter of which it leaves to r_perf."""
    return Stage(first=0.1, outcomes=max(1, min(updates - 1, round(SHAPED * updates))), finish=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardParts:
    total: float
    stage: float
    parallel: float
    finish: float
    performance: float


def result_of(report: Report, score: float) -> MeasuredPlan:
    """Return the result of a run whose answer is right to this degree."""
    steps = [row for row in report.steps if not row.children]  # a fan-out is its children
    path = report.critical_path
    return MeasuredPlan(
        score=score if report.status == "done" else 0.0,
        seconds=path.seconds,
        serial_seconds=path.serial_seconds,
        critical_steps=path.critical_steps,
        width=report.width,
        steps=len(steps),
        used=sum(row.state == "done" and _is_used(report, row.parent or row.id) for row in steps),
        tokens=sum(row.prompt_tokens + row.output_tokens for row in steps),
    )


def _is_used(report: Report, step: str) -> bool:
    states = {row.id: row.state for row in report.steps}
    if any(states[edge.after] == "done" for edge in report.graph.edges if edge.before == step):
        return True
    wanted = {result.name for result in report.results}
    return any(not wanted.isdisjoint(row.outputs) for row in report.steps if row.id == step)


def reward(result: MeasuredPlan, best: MeasuredPlan, updates: int, settings: RewardSettings) -> RewardParts:
    """Return the reward of a run after a number of updates of the policy. `best` is how the best plan went there."""
    stage = settings.stage.at(updates if settings.annealed else 0)
    parallel = parallel_share(result.serial_seconds - result.seconds, result.seconds) if settings.parallel else 0.0
    finish = result.used / result.steps if result.steps else 0.0
    performed = performance(result, best, settings)
    total = stage * (parallel + settings.stage.finish * finish) + performed
    return RewardParts(total=total, stage=stage, parallel=parallel, finish=finish, performance=performed)


def performance(result: MeasuredPlan, best: MeasuredPlan, settings: RewardSettings) -> float:
    """Return how right the answer is, from 0 to 1, less the price of time."""
    excess = longer(result, best) if settings.cost == "seconds" else _more_steps(result, best)
    return result.score * (1.0 - settings.price * min(1.0, excess))


def longer(result: MeasuredPlan, best: MeasuredPlan) -> float:
    """Return by which part the critical path is longer than that of the best plan, at least 0."""
    return max(0.0, result.seconds / best.seconds - 1.0) if best.seconds > 0 else 0.0


def _more_steps(result: MeasuredPlan, best: MeasuredPlan) -> float:
    return max(0.0, result.critical_steps / best.critical_steps - 1.0) if best.critical_steps else 0.0


def is_collapsed(result: MeasuredPlan, feasible: int) -> bool:
    """Whether a plan is less than half as wide as the best one, which runs `feasible` steps at a time."""
    return feasible > 1 and 2 * result.width < feasible


def spurious_share(result: MeasuredPlan, best: MeasuredPlan) -> float:
    """Return the share of steps that did not end or were not used, or that the best plan does without."""
    if not result.steps:
        return 0.0
    return max(result.steps - result.used, result.steps - best.steps, 0) / result.steps


def advantages(rewards: Sequence[float]) -> list[float]:
    """Return how much better each reward of a group is than their mean, in standard deviations (GRPO, Shao et al.)."""
    mean, deviation = fmean(rewards), pstdev(rewards)
    if deviation < LEAST_DEVIATION:
        return [0.0] * len(rewards)
    return [(each - mean) / deviation for each in rewards]
