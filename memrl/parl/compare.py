"""Compare two policies in pairs on requests that no training has seen: other names, width 16, another family."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Protocol

from orchestrator.bench.paired import mean_interval
from orchestrator.bench.simulate.machine import Machine
from orchestrator.memrl.parl.harness import Harness, Policy
from orchestrator.memrl.parl.requests import FamilyName, PlannedRequest
from orchestrator.memrl.parl.reward import (
    MeasuredPlan,
    RewardSettings,
    is_collapsed,
    longer,
    performance,
    spurious_share,
)
from orchestrator.task.modes import Mode

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFigures:
    """Means of a policy over requests and machines."""

    performance: float
    success: float  # share of right answers
    collapse: float  # share of wide requests that are planned less than half as wide as the best plan
    spurious: float  # share of steps that are not used, or that the best plan does without
    longer: float  # by which part the critical path of right answers is longer than that of the best plan
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How much better the candidate is, with a 95 % interval over requests."""

    requests: int
    gain: float  # of the mean performance
    low: float
    high: float
    current: PolicyFigures
    candidate: PolicyFigures

    @property
    def better(self) -> bool:
        """Whether the candidate is better with certainty."""
        return self.low > 0


class Contestant(Protocol):
    """Carries requests out in its own way."""

    def run(self, harness: Harness, request: PlannedRequest, machine: Machine) -> MeasuredPlan:
        """Return how a request goes. Raises what `Harness.run` raises."""


@dataclass(frozen=True, slots=True)
class Planned:
    """Requests are planned by a policy."""

    policy: Callable[[PlannedRequest], Policy]
    by_cores: bool  # whether it is told the cores
    mode: Mode = "as-planned"
    removes: bool = False  # whether it is tried which steps a right answer needs

    def run(self, harness: Harness, request: PlannedRequest, machine: Machine) -> MeasuredPlan:
        """Return how a request goes. Raises what `Harness.run` raises."""
        rollout = harness.run(request, machine, self.policy(request), by_cores=self.by_cores, mode=self.mode)
        if not (self.removes and rollout.result.right and len(rollout.plans) == 1):
            return rollout.result
        share = harness.removable_share(request, machine, rollout.plans[0].text)
        return replace(rollout.result, removable=share)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutRun:
    """How a request went on a machine."""

    request: str
    family: FamilyName
    machine: str
    result: MeasuredPlan
    best: MeasuredPlan


def measure(
    harnesses: Sequence[Harness],
    machines: Sequence[Machine],
    requests: Sequence[PlannedRequest],
    contestant: Contestant,
    progress: OnProgress = lambda done, total: None,
) -> list[HeldOutRun]:
    """Run each request on each machine. The harnesses, one for each kind of worker, take turns.

    Raises what `Harness.run` raises.
    """
    runs = []
    for number, request in enumerate(requests):
        harness = harnesses[number % len(harnesses)]
        for machine in machines:
            result = contestant.run(harness, request, machine)
            runs.append(
                HeldOutRun(
                    request=request.name,
                    family=request.family,
                    machine=machine.name,
                    result=result,
                    best=harness.best(request, machine),
                )
            )
        progress(number + 1, len(requests))
    return runs


def compare(current: Sequence[HeldOutRun], candidate: Sequence[HeldOutRun], settings: RewardSettings) -> Comparison:
    """Compare the runs of the same requests on the same machines. A request counts once, whatever the machines."""
    gains: dict[str, list[float]] = {}
    for before, after in zip(current, candidate, strict=True):
        gain = performance(after.result, after.best, settings) - performance(before.result, before.best, settings)
        gains.setdefault(before.request, []).append(gain)
    means = [fmean(each) for each in gains.values()]
    low, high = mean_interval(means)
    return Comparison(
        requests=len(means),
        gain=fmean(means),
        low=low,
        high=high,
        current=figures_of(current, settings),
        candidate=figures_of(candidate, settings),
    )


def figures_of(runs: Sequence[HeldOutRun], settings: RewardSettings) -> PolicyFigures:
    """Return the means over runs, at least one."""
    wide = [run for run in runs if run.best.width > 1]
    right = [run for run in runs if run.result.right]
    return PolicyFigures(
        performance=fmean(performance(run.result, run.best, settings) for run in runs),
        success=len(right) / len(runs),
        collapse=fmean(is_collapsed(run.result, run.best.width) for run in wide) if wide else 0.0,
        spurious=fmean(spurious_share(run.result, run.best) for run in runs),
        longer=fmean(longer(run.result, run.best) for run in right) if right else 0.0,
        width=fmean(run.result.width for run in runs),
    )
