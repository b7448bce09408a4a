"""Compare two policies in pairs on requests that no training has seen: other names, width 16, another family."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from orchestrator.bench.paired import mean_interval
from orchestrator.bench.simulate.machine import Machine
from orchestrator.memrl.parl.harness import Harness, Policy
from orchestrator.memrl.parl.requests import PlannedRequest
from orchestrator.memrl.parl.reward import (
    MeasuredPlan,
    RewardSettings,
    is_collapsed,
    longer,
    performance,
    spurious_share,
)
from orchestrator.task.modes import Mode


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


@dataclass(frozen=True, slots=True)
class Side:
    """One of the policies that are compared."""

    policy: Policy
    by_cores: bool  # whether it is told the cores
    mode: Mode = "as-planned"


@dataclass(frozen=True, slots=True)
class _Measured:
    result: MeasuredPlan
    best: MeasuredPlan
    width: int


def compare(
    harnesses: Sequence[Harness],
    machines: Sequence[Machine],
    requests: Sequence[PlannedRequest],
    current: Side,
    candidate: Side,
    settings: RewardSettings,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Comparison:
    """Run each request with both policies on each machine. The harnesses, one for each kind of worker, take turns.

    Raises what `Harness.run` raises.
    """
    gains: list[float] = []
    rows: tuple[list[_Measured], list[_Measured]] = ([], [])
    for number, request in enumerate(requests):
        harness = harnesses[number % len(harnesses)]
        differences = []
        for machine in machines:
            best = harness.best(request, machine)
            values = []
            for side, measured in zip((current, candidate), rows, strict=True):
                result = harness.run(request, machine, side.policy, by_cores=side.by_cores, mode=side.mode).result
                measured.append(_Measured(result, best, request.width))
                values.append(performance(result, best, settings))
            differences.append(values[1] - values[0])
        gains.append(fmean(differences))
        progress(number + 1, len(requests))
    low, high = mean_interval(gains)
    return Comparison(
        requests=len(requests),
        gain=fmean(gains),
        low=low,
        high=high,
        current=_figures(rows[0], settings),
        candidate=_figures(rows[1], settings),
    )


def _figures(rows: Sequence[_Measured], settings: RewardSettings) -> PolicyFigures:
    wide = [row for row in rows if row.width > 1]
    right = [row for row in rows if row.result.right]
    return PolicyFigures(
        performance=fmean(performance(row.result, row.best, settings) for row in rows),
        success=len(right) / len(rows),
        collapse=fmean(is_collapsed(row.result, row.width) for row in wide) if wide else 0.0,
        spurious=fmean(spurious_share(row.result, row.best) for row in rows),
        longer=fmean(longer(row.result, row.best) for row in right) if right else 0.0,
        width=fmean(row.result.width for row in rows),
    )
