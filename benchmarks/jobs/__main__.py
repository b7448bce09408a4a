"""Measure whether the orchestrator answers requests better than one chat.

`python -m benchmarks.jobs [--model 1.5b] [--half tuning] [--arm chat] [--jobs NAME]`. Answers that are in the log are
not asked for again, so the command continues where it stopped; `--judge` only judges them again. Held-out jobs are for
the end: no prompt, plan or route may be tuned on them. Once they were used so, others have to take their place.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks import results
from benchmarks.daemon.process import BenchmarkFailed
from benchmarks.jobs.arms import ModelSetup, Row
from benchmarks.jobs.measure import (
    ARMS,
    DEFAULT_ARMS,
    EarlierVersion,
    JobBench,
    JudgedRun,
    choose,
    goals_with_intervals,
    table,
)
from benchmarks.options import positive
from orchestrator.bench import environment
from orchestrator.bench.goals import state

FOLDER: Final = Path(__file__).parents[2] / "build" / "jobs"
RESULTS: Final = results.FOLDER / "jobs.json"
SMALL_ENV, LARGE_ENV = "JOBS_05B", "JOBS_15B"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is not in the log yet, print the counts, and write the results if asked to.

    Returns 1 if a goal is missed, and 2 for a job that does not exist.
    """
    options = _parser().parse_args(arguments)
    setups = _setups(options)
    try:
        jobs = choose(options.half, options.jobs)
    except KeyError as unknown:
        print(f"--jobs: there is no job or group {unknown}", file=sys.stderr)
        return 2
    published = {} if options.published is None else results.read(options.published)
    earlier = [JudgedRun.from_json(row) for row in published.get("rows", ())]
    say = partial(print, flush=True)
    bench = JobBench(options.folder, jobs, options.arm or DEFAULT_ARMS, say, published=earlier, at_once=options.at_once)
    models = options.model or [*setups]
    if not options.judge:
        for model in models:
            try:
                bench.run(setups[model], options.rounds)
            except BenchmarkFailed as failure:
                print(f"the model {model} is left out: {failure}", file=sys.stderr)
    runs = [*bench.judged(models, options.rounds)]
    before = published.get("before") if options.before is None else results.read(options.before)
    version = None if before is None else EarlierVersion(before["half"], before["table"])
    goals = goals_with_intervals(runs, version)
    _print(runs, goals)
    if options.out is not None:
        results.write(options.out, _document(options, runs, version, goals))
        print(f"written to {options.out}")
    return 0 if all(goal["met"] for goal in goals) else 1


def _setups(options: argparse.Namespace) -> Mapping[str, ModelSetup]:
    small, large, planner = options.small, options.large, ("--model", options.frontdoor or options.small)
    return {
        "1.5b": ModelSetup("1.5b", ("--model", large, *planner)),
        "ladder": ModelSetup("ladder", ("--worker", small, "--coder", large, *planner)),
        "smollm2": ModelSetup("smollm2", ("--model", "smollm2-135m")),
    }


def _print(runs: Sequence[JudgedRun], goals: Sequence[Row]) -> None:
    costs = f"{'seconds':>8} {'in':>7} {'out':>6} {'failed':>7} {'false ✓':>8}"
    print(f"\n{'model':8} {'half':8} {'group':9} {'arm':13} {'right':>9} {costs}")
    for row in table(runs):
        right, tokens = f"{row['right']} of {row['of']}", f"{row['input_tokens']:7.0f} {row['output_tokens']:6.0f}"
        names = f"{row['model']:8} {row['half']:8} {row['group']:9} {row['arm']:13}"
        seconds = "-" if row["seconds"] is None else f"{row['seconds']:.1f}"
        print(f"{names} {right:>9} {seconds:>8} {tokens} {row['failed']:7} {row['false_done']:8}")
    for goal in goals:
        reached = state(goal["value"], goal["goal"], met=goal["met"])
        low, high = goal["interval"]
        print(f"{reached:6} {goal['name']}: {goal['value']} ({low:g} to {high:g}; goal: {goal['goal']})")


def _document(
    options: argparse.Namespace, runs: Sequence[JudgedRun], before: EarlierVersion | None, goals: Sequence[Row]
) -> dict[str, Any]:
    return {
        "command": f"python -m benchmarks.jobs --half {options.half} --out benchmarks/results/jobs.json",
        "machine": environment.machine() | {"processor": ", ".join(sorted({run.processor for run in runs}))},
        "versions": environment.versions("llama-cpp-python"),
        "half": options.half,
        "rounds": options.rounds,
        "table": table(runs),
        "before": None if before is None else before.to_json(),
        "rows": [run.to_json() for run in runs],
        "goals": list(goals),
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.jobs", description=__doc__)
    add = parser.add_argument
    add("--model", action="append", choices=("1.5b", "ladder", "smollm2"), help="several times for several; else all")
    add("--half", choices=("tuning", "held-out", "all"), default="tuning", help="(default: %(default)s)")
    add("--arm", action="append", choices=ARMS, help="several times for several; else all but planned")
    add("--rounds", type=positive, default=3, help="(default: %(default)s)")
    add("--jobs", nargs="+", default=(), metavar="NAME", help="names of jobs or groups; else all of the half")
    add("--judge", action="store_true", help="judge the answers in the log again, and run nothing")
    add("--published", type=Path, metavar="FILE", help="results to complete; their rows are not measured again")
    add("--at-once", type=positive, default=1, help="jobs at the same time; with several, rows have no seconds")
    add("--before", type=Path, metavar="FILE", help="results of an earlier version, for the goal on false done")
    add("--small", default=os.environ.get(SMALL_ENV, "qwen2.5-coder-0.5b"), help=f"the 0.5B model; else {SMALL_ENV}")
    add("--large", default=os.environ.get(LARGE_ENV, "qwen2.5-coder-1.5b"), help=f"the 1.5B model; else {LARGE_ENV}")
    add("--frontdoor", metavar="NAME", help="the model that plans for the larger ones; else the 0.5B")
    add("--folder", type=Path, default=FOLDER, help="keeps the log (default: %(default)s)")
    add("--out", type=Path, metavar="FILE", help=f"where the results go, as {RESULTS.relative_to(results.ROOT)}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
