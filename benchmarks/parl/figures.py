"""Compute the figures of arms and controls, with intervals over seeds and requests. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from statistics import fmean
from typing import Any, Final

from benchmarks.parl.arms import BEST, SHIPPED, SUPERVISED, WINNER
from orchestrator.bench.goals import at_least, at_most
from orchestrator.bench.paired import mean_interval
from orchestrator.memrl.parl.compare import HeldOutRun, figures_of
from orchestrator.memrl.parl.reward import RewardSettings, is_collapsed, longer, performance, spurious_share

RESAMPLES: Final = 2000
WIDE: Final = 2  # parts of a request that gains by splitting

Value = Callable[[HeldOutRun], float]
FIGURES: Final[Mapping[str, tuple[Value, Callable[[HeldOutRun], bool]]]] = {
    "success": (lambda run: float(run.result.right), lambda run: True),
    "collapse": (lambda run: float(is_collapsed(run.result, run.best.width)), lambda run: run.best.width >= WIDE),
    "spurious": (lambda run: spurious_share(run.result, run.best), lambda run: True),
    "removable": (lambda run: run.result.removable or 0.0, lambda run: run.result.removable is not None),
    "regret": (lambda run: longer(run.result, run.best), lambda run: run.result.right),
    "width": (lambda run: run.result.width, lambda run: run.best.width >= WIDE),
    "seconds": (lambda run: run.result.seconds, lambda run: run.result.right),
    "tokens": (lambda run: run.result.tokens, lambda run: True),
}
"""Figure → its value for a run, and which runs have one."""

Seeds = Sequence[Sequence[HeldOutRun]]
"""The runs of each seed; a control has one."""


def rows_of(controls: Mapping[str, Sequence[HeldOutRun]], arms: Mapping[str, Seeds]) -> dict[str, dict[str, Any]]:
    """Return the figures of controls, of the best plans, which are those of every control, and of arms."""
    best = [replace(run, result=run.best) for run in next(iter(controls.values()))]
    seeds: dict[str, Seeds] = {**{name: [runs] for name, runs in controls.items()}, BEST: [best], **arms}
    return {name: row(name, runs) for name, runs in seeds.items()}


def gain_over(control: Sequence[HeldOutRun], seeds: Seeds) -> dict[str, float]:
    """Return how much better an arm performs than a control, in pairs, with a 95 % interval over requests."""
    gains: dict[str, list[float]] = {}
    for runs in seeds:
        for before, after in zip(control, runs, strict=True):
            settings = RewardSettings()
            gain = performance(after.result, after.best, settings) - performance(before.result, before.best, settings)
            gains.setdefault(before.request, []).append(gain)
    means = [fmean(values) for values in gains.values()]
    low, high = mean_interval(means)
    return {"gain": fmean(means), "low": low, "high": high}


def row(name: str, seeds: Seeds) -> dict[str, Any]:
    """Return the figures of an arm or a control."""
    return {
        "name": name,
        "seeds": len(seeds),
        "performance": fmean(figures_of(runs, RewardSettings()).performance for runs in seeds),
        **{figure: estimate(seeds, *rule) for figure, rule in FIGURES.items()},
        "by_machine": {
            machine: {
                figure: estimate([[run for run in runs if run.machine == machine] for runs in seeds], *rule)["value"]
                for figure, rule in FIGURES.items()
            }
            for machine in dict.fromkeys(run.machine for run in seeds[0])
        },
    }


def estimate(seeds: Seeds, value: Value, counts: Callable[[HeldOutRun], bool]) -> dict[str, float | None]:
    """Return the mean with a 95 % interval: seeds, and requests within each, are drawn again (bootstrap)."""
    clustered = [_by_request(runs, value, counts) for runs in seeds]
    clustered = [requests for requests in clustered if requests]
    return drawn_again(clustered)


def drawn_again(clusters: Sequence[Sequence[float]]) -> dict[str, float | None]:
    """Return the mean of the clusters' means with a 95 % interval: clusters, and values within each, are drawn again.

    All are None if there are no clusters.
    """
    if not clusters:
        return {"value": None, "low": None, "high": None}
    draw = Random(0)  # noqa: S311 - the same values always have the same interval
    means = sorted(
        fmean(fmean(draw.choices(values, k=len(values))) for values in draw.choices(clusters, k=len(clusters)))
        for _ in range(RESAMPLES)
    )
    cut = round(0.025 * RESAMPLES)
    return {"value": fmean(map(fmean, clusters)), "low": means[cut], "high": means[-cut - 1]}


def _by_request(runs: Sequence[HeldOutRun], value: Value, counts: Callable[[HeldOutRun], bool]) -> list[float]:
    by_request: dict[str, list[float]] = {}
    for run in runs:
        if counts(run):
            by_request.setdefault(run.request, []).append(value(run))
    return [fmean(values) for values in by_request.values()]


def goals(
    rows: Mapping[str, Mapping[str, Any]], arms: Mapping[str, Seeds], agent: Sequence[HeldOutRun], hours: float
) -> list[dict[str, Any]]:
    """Return the goals with what was measured, for the arm that ships. `agent` are the runs of one agent."""
    trained, before = rows[WINNER], rows[SHIPPED]
    machines, split = trained["by_machine"], arms[WINNER]
    small, *larger = machines
    large = larger[-1]
    collapsed = max(rows[arm]["collapse"]["value"] for arm in (SUPERVISED, "performance only"))
    reached = [
        at_least("collapse rate without the parallel reward", collapsed, 0.6),
        at_most("collapse rate", trained["collapse"]["value"], 0.05),
        at_most("spurious steps", trained["spurious"]["value"], 0.05),
        at_most("steps whose removal changes nothing", trained["removable"]["value"] or 0.0, 0.05),
        at_least("success less that of the frontdoor that ships", _less(trained, before, "success"), -0.02),
        at_most("regret on few cores", machines[small]["regret"] or 0.0, 0.1),
        at_most("regret on many cores", machines[large]["regret"] or 0.0, 0.1),
        *(
            at_most(f"wide requests on {name}: critical path ÷ one agent's", time_share(agent, split, name), 0.7)
            for name in larger
        ),
        at_most(f"wide requests on {small}: critical path ÷ one agent's", time_share(agent, split, small), 1.05),
        at_most("hours of a training", hours, 4.0),
    ]
    return [{"name": goal.name, "value": goal.value, "goal": goal.goal, "met": goal.met} for goal in reached]


def _less(first: Mapping[str, Any], second: Mapping[str, Any], figure: str) -> float:
    return float(first[figure]["value"] - second[figure]["value"])


def time_share(agent: Sequence[HeldOutRun], seeds: Seeds, machine: str) -> float:
    """Return the mean critical path as a share of one agent's, of wide requests on a machine that both do right.

    A request is wide if its best plan is on some machine. Nobody can shorten others by splitting.

    Infinite if there are none.
    """
    wide = {run.request for run in agent if run.best.width >= WIDE}
    shares = [
        after.result.seconds / before.result.seconds
        for runs in seeds
        for before, after in zip(agent, runs, strict=True)
        if after.request in wide and after.machine == machine and before.result.right and after.result.right
    ]
    return fmean(shares) if shares else float("inf")
