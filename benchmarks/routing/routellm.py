"""Route the prompts of RouteLLM's evaluation data between two models, and compare the policy with simpler methods.

Each learner sees a shuffled stream of prompts. It predicts first, and then sees both outcomes, or only that of a model
that was drawn at random, or of the one that it chose itself with at most half of the prompts for the strong model.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import get_args

import numpy as np

from benchmarks.routing.learners import (
    SHARE,
    Drawn,
    LogisticOnText,
    MeanOfSubject,
    PolicyLearner,
    RuleOfNeighbours,
    mean,
    memrl,
)
from benchmarks.routing.outcomes import Outcomes, read_outcomes
from benchmarks.routing.rows import BenchmarkPart, Row, RowLog, goal_with_interval, interval
from benchmarks.routing.stream import Learner, Mode, run_stream, score
from orchestrator.bench.goals import at_least, at_most
from orchestrator.memrl.policy import PolicySettings, RetrievalSettings
from orchestrator.memrl.reward import Stage
from orchestrator.memrl.router import NEIGHBOURS
from orchestrator.task import lexical

MODES: tuple[Mode, ...] = get_args(Mode)
SETS = ("mmlu", "gsm8k")
POLICY = "policy"
WIDER = f"policy, {lexical.DIMENSIONS} dimensions"

Maker = Callable[[Outcomes, np.random.Generator], Learner]

# The defaults, within a budget. A single answer has no parallel steps, so no reward is shaped.
SETTINGS = PolicySettings(stage=Stage(first=0.0), budget=SHARE)
_HEAD_ONLY = replace(SETTINGS, retrieval_part=0.0)
_PAPER = RetrievalSettings(threshold=0.0, candidates=5, chosen=3, weight=0.5)
_OURS = RetrievalSettings(threshold=0.0, candidates=100, chosen=50, weight=0.2)


def _policy(settings: PolicySettings, retrieved: int = NEIGHBOURS) -> Maker:
    return lambda data, rng: PolicyLearner(data, settings, rng, retrieved)


LEARNERS: dict[str, Maker] = {
    POLICY: _policy(SETTINGS),
    "drawn": lambda data, rng: Drawn(rng),
    "logistic on hashed n-grams": LogisticOnText,
    "nearest neighbours, k = 100": lambda data, rng: RuleOfNeighbours(data, rng, mean, 100),
    "MemRL, k = 5/3, lambda = 0.5 (the paper's)": lambda data, rng: RuleOfNeighbours(data, rng, memrl(_PAPER), 5),
    "MemRL, k = 100/50, lambda = 0.2": lambda data, rng: RuleOfNeighbours(data, rng, memrl(_OURS), 100),
    "mean of the subject, which no router is told": MeanOfSubject,
    WIDER: _policy(SETTINGS),
    "head alone": _policy(_HEAD_ONLY, retrieved=0),
    "head alone, only its shared model": _policy(
        replace(_HEAD_ONLY, head=replace(_HEAD_ONLY.head, own=0.0, bayes=0.0)), retrieved=0
    ),
    "head alone, only its models per action": _policy(
        replace(_HEAD_ONLY, head=replace(_HEAD_ONLY.head, shared=0.0, bayes=0.0)), retrieved=0
    ),
    "head alone, only its Bayesian models": _policy(
        replace(_HEAD_ONLY, head=replace(_HEAD_ONLY.head, shared=0.0, own=0.0)), retrieved=0
    ),
}

# The learners that are tried with both outcomes only.
ONCE = frozenset(name for name in LEARNERS if name.startswith("head alone")) | {WIDER}


def run(data: Path, cache: Path, rows: RowLog, seeds: int, learners: Sequence[str] = ()) -> BenchmarkPart:
    """Return the scores of some learners (all, if none is named) on both sets, with means over seeds.

    Raises DataError and OSError.
    """
    table = []
    for learner in dict.fromkeys([POLICY, *(learners or LEARNERS)]):
        dimensions = lexical.DIMENSIONS if learner == WIDER else lexical.LEARNING_DIMENSIONS
        for name in SETS:
            outcomes = read_outcomes(data / f"{name}.csv", cache, dimensions)
            for mode in MODES[:1] if learner in ONCE else MODES:
                table.append(_row(outcomes, learner, LEARNERS[learner], mode, rows, seeds))
    table.sort(key=lambda row: SETS.index(row["set"]))
    return BenchmarkPart(table, list(_goals(table)))


def _row(data: Outcomes, learner: str, make: Maker, mode: Mode, rows: RowLog, seeds: int) -> Row:
    scores = [
        rows.get(
            ("routellm", data.name, data.digest, learner, mode, str(seed)),
            lambda seed=seed: run_seed(data, make, mode, seed),  # type: ignore[misc]
            *_sources(),
        )
        for seed in range(seeds)
    ]
    row: Row = {"set": data.name, "prompts": len(data.correct), "learner": learner, "mode": mode, "seeds": seeds}
    for name in scores[0]:
        middle, low, high = interval([seed_scores[name] for seed_scores in scores])
        row[name] = [round(number, 4) for number in (middle, low, high)]
    return row


def run_seed(data: Outcomes, make: Maker, mode: Mode, seed: int) -> Row:
    """Return the scores of a learner on one order of the stream."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(data.correct)).tolist()
    return asdict(score(run_stream(data, make(data, rng), mode, order, rng)))


def _goals(rows: list[Row]) -> Iterator[Row]:
    by_set = {(row["set"], row["mode"]): row for row in rows if row["learner"] == POLICY}
    both, own = by_set["mmlu", "full"], by_set["mmlu", "chosen"]
    gsm8k = by_set["gsm8k", "full"]
    wanted = (
        ("APGR on MMLU, both outcomes seen", both["apgr"], 0.66),
        ("APGR on MMLU, only the chosen outcome seen", own["apgr"], 0.63),
        ("gap recovered on MMLU by the policy's own choices", own["recovered"], 0.68),
        ("APGR on GSM8K, both outcomes seen", gsm8k["apgr"], 0.57),
    )
    for name, (value, low, high), bound in wanted:
        yield goal_with_interval(at_least(name, value, bound), low, high)
    limits = (
        ("share of the strong model in the policy's own choices on MMLU", own["strong_share"], SHARE),
        ("calibration error on MMLU, weak model", both["weak_error"], 0.03),
        ("calibration error on MMLU, strong model", both["strong_error"], 0.03),
    )
    for name, (value, low, high), bound in limits:
        yield goal_with_interval(at_most(name, value, bound), low, high)


def _sources() -> list[Path]:
    """Return the files that the scores depend on."""
    root = Path(__file__).parents[2]
    learned = ("features", "retrieval", "head", "calibration", "reward", "exploration", "policy")
    return [
        *(root / "memrl" / f"{name}.py" for name in learned),
        *(Path(__file__).with_name(f"{name}.py") for name in ("routellm", "stream", "learners")),
    ]
