"""Show that the router does not learn to run plans serially: `serial collapse`, which the staged reward is to prevent.

Requests in words are run by the production harness in each mode, one run at a time: as planned, with plans that
continue when a step is done (discover), and serially. Then routers learn which mode to choose from the outcomes of
their own choices, with the staged reward and without. A run counts as a success if it was done, so the modes differ
mostly in time.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from benchmarks.routing.rows import BenchmarkPart, Row, RowLog, goal_with_interval, interval
from orchestrator.bench.goals import at_least
from orchestrator.memrl.episodes import MODES, Action, Neighbourhood, Outcome, Situation, situation_of
from orchestrator.memrl.policy import Policy, PolicySettings
from orchestrator.memrl.reward import Stage
from orchestrator.registry.load import load_registry
from orchestrator.run.job import Job
from orchestrator.run.orchestrator import Orchestrator
from orchestrator.run.record.report import load_report
from orchestrator.task import lexical
from orchestrator.task.modes import Mode

ROOT: Final = Path(__file__).parents[2]
RECORDS: Final = ROOT / "examples" / "records"
FILES: Final = tuple("abcdef")
REQUESTS: Final = (
    "Summarize {files}, then compare them",
    "Summarize {files}, then merge the summaries",
    "Summarize {files} and compare the summaries",
)
ROLE: Final = "frontdoor"
AT_A_TIME: Final = 6
ROLLOUTS: Final = 300
HELD_OUT: Final = 1 / 3
STAGES: Final = {"with the staged reward": Stage(), "without it": Stage(first=0.0)}
NOTHING: Final = Neighbourhood.of(())


def requests() -> list[str]:
    """Return requests about two to six files each."""
    made = []
    for count, wording in product(range(2, len(FILES) + 1), REQUESTS):
        for first in (0, len(FILES) - count) if count < len(FILES) else (0,):
            *names, last = (f"{name}.txt" for name in FILES[first : first + count])
            made.append(wording.format(files=f"{', '.join(names)} and {last}"))
    return made


def run(rows: RowLog, seeds: int) -> BenchmarkPart:
    """Return what each mode came to, and what routers have learned to choose. Raises OSError."""
    asked = requests()
    tried: list[list[dict[str, Any]]] = []
    for start in range(0, len(asked), AT_A_TIME):
        some = asked[start : start + AT_A_TIME]
        made = rows.get(("modes", *some), partial(_chunk, some))
        tried += made["runs"]
    table: list[Row] = [_mode_row(place, mode, tried) for place, mode in enumerate(MODES)]
    for name, stage in STAGES.items():
        each = [learned(asked, tried, stage, seed) for seed in range(seeds)]
        row: Row = {"what": f"learned {name}, {ROLLOUTS} rollouts"}
        table.append(row | {key: [round(number, 4) for number in interval([s[key] for s in each])] for key in each[0]})
    staged = next(row for row in table if "with the" in row["what"])
    goals = [
        goal_with_interval(at_least(name, staged[key][0], bound), staged[key][1], staged[key][2])
        for name, key, bound in (
            ("speed-up over serial runs of the modes that are learned with the staged reward", "speed_up", 1.0),
            ("share of held-out requests that are not run serially, with the staged reward", "parallel", 0.9),
        )
    ]
    return BenchmarkPart(table, goals)


def _chunk(some: Sequence[str]) -> Row:
    return {"runs": asyncio.run(_tried(some))}


async def _tried(some: Sequence[str]) -> list[list[dict[str, Any]]]:
    """Return for each request what came of it in each mode."""
    with TemporaryDirectory() as home:
        async with Orchestrator.open(Path(home), load_registry(ROOT / "model_registry.yaml")) as orchestrator:
            await _run(orchestrator, some[0], "as-planned")  # models are loaded, and steps timed for the first time
            return [[await _run(orchestrator, request, mode) for mode in MODES] for request in some]


async def _run(orchestrator: Orchestrator, request: str, mode: Mode) -> dict[str, Any]:
    run = await orchestrator.submit(Job(request, None, RECORDS, mode))
    async for _ in orchestrator.watch(run):
        pass
    report = await asyncio.to_thread(load_report, orchestrator.journal, run)
    path = report.critical_path
    return {
        "done": int(report.status == "done"),
        "seconds": round(report.wall_seconds, 4),
        "saved": round(max(0.0, path.serial_seconds - path.seconds), 4),
        "width": report.width,
        "steps": len(report.steps),
    }


def _mode_row(place: int, mode: str, tried: Sequence[Sequence[dict[str, Any]]]) -> Row:
    runs = [each[place] for each in tried]
    names = ("done", "seconds", "saved", "width", "steps")
    means: Row = {name: round(float(np.mean([run[name] for run in runs])), 4) for name in names}
    return {"what": f"always {mode}", "requests": len(runs), **means}


def learned(
    asked: Sequence[str], tried: Sequence[Sequence[dict[str, Any]]], stage: Stage, seed: int
) -> dict[str, float]:
    """Return what a router chooses for held-out requests after its rollouts: the head decides, which generalises."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(asked))
    cut = round(HELD_OUT * len(asked))
    held_out, taught = order[:cut].tolist(), order[cut:]
    situations = [_situation(request) for request in asked]
    vectors = lexical.embed([situation.text for situation in situations], lexical.LEARNING_DIMENSIONS)
    actions = [Action(ROLE, "", "tiny-large", "", name) for name in MODES.values()]
    policy = Policy(lexical.LEARNING_DIMENSIONS, PolicySettings(stage=stage))
    for request in np.resize(taught, ROLLOUTS).tolist():
        choice = policy.choose(situations[request], vectors[request], NOTHING, actions, rng=rng, explore=True)
        outcome = _outcome(tried[request][actions.index(choice.action)])
        policy.observe(situations[request], vectors[request], choice.action, outcome)
    taken = [
        actions.index(
            policy.choose(situations[request], vectors[request], NOTHING, actions, rng=rng, explore=False).best
        )
        for request in held_out
    ]
    serial = [*MODES].index("serial")
    own = [tried[request][place] for request, place in zip(held_out, taken, strict=True)]
    alone = [tried[request][serial] for request in held_out]
    return {
        "done": float(np.mean([run["done"] for run in own])),
        "width": float(
            np.mean([1 if place == serial else run["width"] for run, place in zip(own, taken, strict=True)])
        ),
        "speed_up": sum(run["seconds"] for run in alone) / sum(run["seconds"] for run in own),
        "parallel": float(np.mean([place != serial for place in taken])),
    }


def _situation(request: str) -> Situation:
    return replace(situation_of(role=ROLE, objective=request, task=None, step=None, plan=True), interactive=False)


def _outcome(run: dict[str, Any]) -> Outcome:
    return Outcome(
        success=float(run["done"]),
        source="checker",
        critical_seconds=run["seconds"],
        saved_seconds=run["saved"],
        used=bool(run["done"]),
    )
