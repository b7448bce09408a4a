"""Compute the figures of arms and controls, with intervals over seeds and requests. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from statistics import fmean
from typing import Any, Final

from benchmarks.parl.arms import AGENT, BEST, SHIPPED, SUPERVISED, WINNER
from benchmarks.routing.rows import goal_with_interval
from orchestrator.bench.goals import Goal, at_least, at_most
from orchestrator.bench.paired import mean_interval
from orchestrator.memrl.parl.compare import HeldOutRun, figures_of
from orchestrator.memrl.parl.reward import RewardSettings, is_collapsed, longer, performance, spurious_share

RESAMPLES: Final = 2000
REMOVAL: Final = "steps whose removal changes nothing, with the adapter that ships"
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

Estimate = Mapping[str, float | None]
"""A mean (`value`) with its 95 % interval (`low`, `high`). All are None if nothing counts."""
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


def estimate(seeds: Seeds, value: Value, counts: Callable[[HeldOutRun], bool]) -> Estimate:
    """Return the mean with a 95 % interval: seeds, and requests within each, are drawn again (bootstrap)."""
    clustered = [_by_request(runs, value, counts) for runs in seeds]
    clustered = [requests for requests in clustered if requests]
    return drawn_again(clustered)


def drawn_again(clusters: Sequence[Sequence[float]]) -> Estimate:
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
    rows: Mapping[str, Mapping[str, Any]],
    arms: Mapping[str, Seeds],
    controls: Mapping[str, Sequence[HeldOutRun]],
    hours: float,
) -> list[dict[str, Any]]:
    """Return the goals with what was measured, for the arm that ships."""
    trained, split = rows[WINNER], arms[WINNER]
    small, *larger = trained["by_machine"]
    collapsed = max((rows[arm]["collapse"] for arm in (SUPERVISED, "performance only")), key=lambda rate: rate["value"])
    success = paired(controls[SHIPPED], split, lambda before, after: float(after.result.right - before.result.right))
    agent = controls[AGENT]
    duration = at_most("hours of a training", hours, 4.0)
    return [
        _goal(at_least, "collapse rate without the parallel reward", collapsed, 0.6),
        _goal(at_most, "collapse rate", trained["collapse"], 0.05),
        _goal(at_most, "spurious steps", trained["spurious"], 0.05),
        _goal(at_least, "success less that of the frontdoor that ships", success, -0.02),
        _goal(at_most, "regret on few cores", _on(small, split), 0.1),
        _goal(at_most, "regret on many cores", _on(larger[-1], split), 0.1),
        *(
            _goal(at_most, f"wide requests on {name}: critical path ÷ one agent's", share, longest)
            for name, longest in (*((name, 0.7) for name in larger), (small, 1.05))
            for share in (time_share(agent, split, name),)
        ),
        {"name": duration.name, "value": duration.value, "goal": duration.goal, "met": duration.met},
    ]


def removal_goal(shipped: Mapping[str, Any]) -> dict[str, Any]:
    """Return the goal on needless steps of the adapter that ships, given its row."""
    return _goal(at_most, REMOVAL, shipped["removable"], 0.05)


def _goal(make: Callable[[str, float, float], Goal], name: str, measured: Estimate, bound: float) -> dict[str, Any]:
    value, low, high = (measured[part] for part in ("value", "low", "high"))
    if value is None or low is None or high is None:
        return {"name": name, "value": None, "goal": make(name, 0.0, bound).goal, "met": False}
    return goal_with_interval(make(name, value, bound), low, high)


def _on(machine: str, seeds: Seeds) -> Estimate:
    # the regret on one machine
    return estimate([[run for run in runs if run.machine == machine] for runs in seeds], *FIGURES["regret"])


def paired(
    control: Sequence[HeldOutRun], seeds: Seeds, change: Callable[[HeldOutRun, HeldOutRun], float | None]
) -> Estimate:
    """Return the mean of a figure of the runs of a control and of an arm, where it is not None, with its interval."""
    clusters = []
    for runs in seeds:
        changes = [(after.request, change(before, after)) for before, after in zip(control, runs, strict=True)]
        by_request: dict[str, list[float]] = {}
        for request, value in changes:
            if value is not None:
                by_request.setdefault(request, []).append(value)
        if by_request:
            clusters.append([fmean(values) for values in by_request.values()])
    return drawn_again(clusters)


def time_share(agent: Sequence[HeldOutRun], seeds: Seeds, machine: str) -> Estimate:
    """Return the mean critical path as a share of one agent's, of wide requests on a machine that both do right.

    A request is wide if its best plan is on some machine. Nobody can shorten others by splitting.
    """
    wide = {run.request for run in agent if run.best.width >= WIDE}

    def share(before: HeldOutRun, after: HeldOutRun) -> float | None:
        counts = after.request in wide and after.machine == machine and before.result.right and after.result.right
        return after.result.seconds / before.result.seconds if counts else None

    return paired(agent, seeds, share)
