"""Compare routers on the grid of the embedded models' task families: what learning brings, what its parts are worth.

families     routers that learn after 0 to 1,000 rollouts, and ones that do not learn, at several prices of time
ablations    the router that learns without one of its parts
credit       runs of three steps of which only the end is known: how their reward is shared among the steps
forgetting   success on old tasks before and after the mix of tasks has changed
threshold    from which similarity on an outcome updates an episode: how many do, and what that does to predictions
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from benchmarks.routing.grid import KEPT, OPTIONS, Grid, read_grid
from benchmarks.routing.rollouts import (
    LARGE,
    GridRouter,
    TaskSplit,
    Variant,
    cheapest_per_family,
    cost_at,
    fixed_choices,
    learn_on,
    prices_for,
    success_at,
)
from benchmarks.routing.rows import BenchmarkPart, Row, RowLog, goal_with_interval, interval
from orchestrator.bench.goals import Goal, above, at_least, at_most
from orchestrator.memrl.head import HeadSettings
from orchestrator.memrl.memory import MemoryOptions
from orchestrator.memrl.policy import PolicySettings, RetrievalSettings
from orchestrator.memrl.reward import Stage

PRICES: Final = (0.05, 0.1, 0.3)  # what a mean attempt of the large model costs, in successes
PRICE: Final = 0.1
AFTER: Final = (0, 100, 300, 1000)  # after how many rollouts routers are judged
KEPT_SUCCESS: Final = 0.98  # the share of the large model's success that is to be kept at less cost
SHIFTED_AFTER: Final = 500  # after how many rollouts the mix of tasks changes
OLD: Final = ("extract", "code", "shell")
NEW: Final = ("summarize", "compare", "merge")
THRESHOLDS: Final = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

_POLICY: Final = PolicySettings()
_HEADLESS: Final = replace(
    _POLICY, head=HeadSettings(own=0.0, shared=0.0, bayes=0.0), retrieval_part=1.0, retrieval_patience=1e-9
)

ABLATIONS: Final[Mapping[str, Variant]] = {
    "all parts": Variant(),
    "no staged reward": Variant(policy=replace(_POLICY, stage=Stage(first=0.0))),
    "no z-scores": Variant(policy=replace(_POLICY, retrieval=RetrievalSettings(normalise=False))),
    "no similarity gate": Variant(policy=replace(_POLICY, retrieval=RetrievalSettings(threshold=-1.0))),
    "no head": Variant(policy=_HEADLESS),
    "no retrieval": Variant(policy=replace(_POLICY, retrieval_part=0.0)),
    "no personas": Variant(personas=False),
}
CREDITS: Final[Mapping[str, Variant]] = {
    "plain credit": Variant(plain=True),
    "TD(0.9)": Variant(trace=0.9),
    "TD(0.5)": Variant(trace=0.5),
}

Scores = dict[str, dict[str, float]]
Make = Callable[[int], Scores]  # returns scores by name, for a seed


def families(rows: RowLog, seeds: int, file: Path = KEPT) -> BenchmarkPart:
    """Return the scores of all routers on held-out tasks, and the goals. Raises DataError and OSError."""
    grid = read_grid(file)
    table, by_price = list[Row](), dict[float, list[Scores]]()
    for price in PRICES:
        each = _seeds(rows, ("families", grid.digest, str(price)), seeds, partial(_family_scores, grid, price))
        by_price[price] = each
        table += [{"price": price, "router": name, **_means(each, name)} for name in each[0]]
    return BenchmarkPart(table, list(_family_goals(grid, by_price, seeds)))


def _family_scores(grid: Grid, price: float, seed: int) -> Scores:
    rng = np.random.default_rng(seed)
    split = TaskSplit.of(grid, rng)
    fixed = fixed_choices(grid, split.held_out, price, rng)
    scores = {name: taken.scores(grid, price) for name, taken in fixed.items()}
    return {**scores, **learn_on(grid, Variant(), price, split, AFTER, seed)}


def _family_goals(grid: Grid, by_price: Mapping[float, Sequence[Scores]], seeds: int) -> Iterator[Row]:
    last = f"after {AFTER[-1]}"
    ratios, gains = [], []
    for seed in range(seeds):
        learned = [each[seed][last] for each in by_price.values()]
        points = [(scores["success"], scores["cost"]) for scores in learned]
        fixed = by_price[PRICE][seed]
        large, rules = fixed["always large"], fixed["rules"]
        held_out = TaskSplit.of(grid, np.random.default_rng(seed)).held_out
        least = cheapest_per_family(grid, held_out, KEPT_SUCCESS)
        ratios.append(cost_at([*points, (large["success"], large["cost"])], KEPT_SUCCESS * large["success"]) / least)
        small = fixed["always small"]
        gains.append(success_at([*points, (small["success"], small["cost"])], rules["cost"]) - rules["success"])
    yield _goal(
        "cost at 0.98 of the large model's success, over that of the best choice per family", ratios, at_most, 1.1
    )
    yield _goal("success at the rules' cost, less that of the rules", gains, above, 0.0)
    main = by_price[PRICE]
    for before, after in pairwise(AFTER):
        changes = [scores[f"after {after}"]["regret"] - scores[f"after {before}"]["regret"] for scores in main]
        yield _goal(
            f"counterfactual regret after {after:,} rollouts, less that after {before:,}", changes, at_most, 0.0
        )


def ablations(rows: RowLog, seeds: int, file: Path = KEPT) -> BenchmarkPart:
    """Return the scores of the router without one of its parts each, and by how much they differ from the whole's."""
    grid = read_grid(file)
    return BenchmarkPart(_variants(grid, rows, "ablations", ABLATIONS, seeds), [])


def credit(rows: RowLog, seeds: int, file: Path = KEPT) -> BenchmarkPart:
    """Return the scores of routers that learn from runs of three steps of which only the end is known."""
    grid = read_grid(file)
    return BenchmarkPart(_variants(grid, rows, "credit", CREDITS, seeds), [])


def _variants(grid: Grid, rows: RowLog, part: str, variants: Mapping[str, Variant], seeds: int) -> list[Row]:
    """Return the rows of variants; `net_gain` is by how much a variant's net value is above the first one's."""
    last = f"after {AFTER[-1]}"
    table: list[Row] = []
    first: list[Scores] = []
    for name, variant in variants.items():
        each = _seeds(rows, (part, grid.digest, name), seeds, partial(_variant_scores, grid, variant))
        first = first or each
        for router in (last, f"{last} alone"):
            gains = [
                scores[router]["net"] - base_scores[router]["net"]
                for scores, base_scores in zip(each, first, strict=True)
            ]
            table.append({"variant": name, "router": router, **_means(each, router), "net_gain": _interval(gains)})
    return table


def _variant_scores(grid: Grid, variant: Variant, seed: int) -> Scores:
    split = TaskSplit.of(grid, np.random.default_rng(seed))
    return learn_on(grid, variant, PRICE, split, AFTER[-1:], seed)


def forgetting(rows: RowLog, seeds: int, file: Path = KEPT) -> BenchmarkPart:
    """Return success on the old mix of tasks before and after as many rollouts of the new one, with its goal."""
    grid = read_grid(file)
    each = _seeds(rows, ("forgetting", grid.digest), seeds, partial(_shifted, grid))
    table = [{"tasks": name, **_means(each, name)} for name in each[0]]
    lost = [scores["old tasks, before"]["success"] - scores["old tasks, after"]["success"] for scores in each]
    return BenchmarkPart(
        table, [_goal("success on the old mix of tasks that is lost after a shift", lost, at_most, 0.02)]
    )


def _shifted(grid: Grid, seed: int) -> Scores:
    rng = np.random.default_rng([seed, 2])
    split = TaskSplit.of(grid, np.random.default_rng(seed))
    old, new = split.only(grid, OLD), split.only(grid, NEW)
    with TemporaryDirectory() as folder:
        router = GridRouter(grid, Variant(), PRICE, Path(folder))
        try:
            router.roll_out(np.resize(old.learned, SHIFTED_AFTER).tolist(), rng)
            before = {
                "old tasks, before": router.held_out(old.held_out, rng)[""].scores(grid, PRICE),
                "new tasks, before": router.held_out(new.held_out, rng)[""].scores(grid, PRICE),
            }
            router.roll_out(np.resize(new.learned, SHIFTED_AFTER).tolist(), rng)
            after = {
                "old tasks, after": router.held_out(old.held_out, rng)[""].scores(grid, PRICE),
                "new tasks, after": router.held_out(new.held_out, rng)[""].scores(grid, PRICE),
            }
        finally:
            router.memory.close()
    return {**before, **after}


def threshold(rows: RowLog, seeds: int, file: Path = KEPT) -> BenchmarkPart:
    """Return for each similarity how many outcomes update an episode, and how good predictions are then."""
    grid = read_grid(file)
    table = []
    for wanted in THRESHOLDS:
        each = _seeds(rows, ("threshold", grid.digest, str(wanted)), seeds, partial(_merged, grid, wanted))
        table.append({"similarity": wanted, **_means(each, "")})
    default = next((row for row in table if row["similarity"] == MemoryOptions().similarity), None)
    if default is None:
        return BenchmarkPart(table, [])
    value, low, high = default["share_updated"]
    name = f"share of outcomes that update an episode at a similarity of {MemoryOptions().similarity:g}"
    return BenchmarkPart(table, [goal_with_interval(at_least(name, value, 0.5), low, high)])


def _merged(grid: Grid, wanted: float, seed: int) -> Scores:
    """Return the scores of a memory that has seen random choices, so that all thresholds see the same outcomes."""
    rng = np.random.default_rng([seed, 3])
    split = TaskSplit.of(grid, np.random.default_rng(seed))
    stream = np.resize(split.learned, AFTER[-1]).tolist()
    drawn = rng.integers(0, len(OPTIONS), len(stream)).tolist()
    with TemporaryDirectory() as folder:
        router = GridRouter(grid, Variant(memory=MemoryOptions(similarity=wanted)), PRICE, Path(folder))
        try:
            with router.memory.batch():
                for task, option in zip(stream, drawn, strict=True):
                    router.learn(task, option)
            stats = router.memory.stats()
            return {
                "": {
                    "share_updated": stats.share_updated,
                    "into_another_family": router.updated_elsewhere / max(1.0, stats.share_updated * stats.outcomes),
                    "episodes": float(stats.episodes),
                    "q_deviation": stats.q_deviation,
                    **_judged(router, split.held_out.tolist()),
                }
            }
        finally:
            router.memory.close()


def _judged(router: GridRouter, tasks: Sequence[int]) -> dict[str, float]:
    """Return how far predictions for held-out tasks are off, and what the best option by them comes to."""
    grid = router.grid
    errors: dict[str, list[float]] = {"similar episodes": [], "memory": []}
    taken: dict[str, list[int]] = {"similar episodes": [], "memory": []}
    second = prices_for(grid, PRICE).second
    for task in tasks:
        estimates = router.policy.estimate(
            grid.situations[task], grid.vectors[task], router.near(task), router.actions(task)
        )
        expectations = {
            "similar episodes": np.array([estimate.retrieved.value for estimate in estimates]),
            "memory": np.array([estimate.worth for estimate in estimates]),
        }
        prices = np.array([estimate.price for estimate in estimates])
        for name, expected in expectations.items():
            errors[name].append(float(((expected - grid.right[task]) ** 2).mean()))
            taken[name].append(int((expected - prices).argmax()))
    scores: dict[str, float] = {}
    for name in errors:
        places = np.array(tasks), np.array(taken[name])
        net = grid.right[places] - second * grid.seconds[places]
        scores |= {f"{name}: Brier score": float(np.mean(errors[name])), f"{name}: net value": float(net.mean())}
    scores["large model: net value"] = float((grid.right[tasks, LARGE] - second * grid.seconds[tasks, LARGE]).mean())
    return scores


def _seeds(rows: RowLog, key: tuple[str, ...], seeds: int, make: Make) -> list[Scores]:
    """Return the scores of all seeds, those that are in the log without computing them."""
    return [rows.get((*key, str(seed)), partial(make, seed), *_sources()) for seed in range(seeds)]


def _means(each: Sequence[Scores], name: str) -> Row:
    """Return the mean of every score over seeds, with its interval."""
    return {score: _interval([scores[name][score] for scores in each]) for score in each[0][name]}


def _interval(values: Iterable[float]) -> list[float]:
    return [round(number, 4) for number in interval([*values])]


def _goal(name: str, values: Sequence[float], kind: Callable[[str, float, float], Goal], bound: float) -> Row:
    value, low, high = interval([*values])
    return goal_with_interval(kind(name, value, bound), low, high)


def _sources() -> list[Any]:
    """Return the files that the scores depend on."""
    root = Path(__file__).parents[2]
    learned = ("features", "retrieval", "head", "calibration", "reward", "exploration", "policy", "memory")
    own = ("credit.py", "families.py", "rollouts.py")
    return [*(root / "memrl" / f"{name}.py" for name in learned), *(Path(__file__).with_name(name) for name in own)]
