"""Measure learned routing, part by part: `python -m benchmarks.routing --data FOLDER [--parts NAME ...]`."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import results
from benchmarks.routing import families, faults, grid, latency, modes, routellm
from benchmarks.routing.outcomes import DataError
from benchmarks.routing.rows import BenchmarkPart, RowLog
from orchestrator.bench import environment

FOLDER = Path(__file__).parents[2] / "build" / "routing"
RESULTS = results.FOLDER / "routing.json"

PARTS: Mapping[str, Callable[[argparse.Namespace, RowLog], BenchmarkPart]] = {
    "grid": lambda options, rows: grid.run(rows),
    "families": lambda options, rows: families.families(rows, options.seeds),
    "ablations": lambda options, rows: families.ablations(rows, options.seeds),
    "credit": lambda options, rows: families.credit(rows, options.seeds),
    "forgetting": lambda options, rows: families.forgetting(rows, options.seeds),
    "modes": lambda options, rows: modes.run(rows, options.seeds),
    "threshold": lambda options, rows: families.threshold(rows, options.seeds),
    "faults": lambda options, rows: faults.run(),
    "latency": lambda options, rows: latency.run(options.episodes),
    "routellm": lambda options, rows: routellm.run(
        _data(options), options.folder, rows, options.seeds, options.learners or ()
    ),
}
DEFAULT = [name for name in PARTS if name != "grid"]  # the grid is published, and made again only if it is named


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts, print their goals, and write the results, which keep those of the parts that were not run.

    Returns 1 if a part cannot be run, with the reason.
    """
    options = _parser().parse_args(arguments)
    rows = RowLog(options.folder / "rows.jsonl")
    for name in options.parts or DEFAULT:
        try:
            part = PARTS[name](options, rows)
        except DataError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
        _write(options.out, name, part, options.seeds)
        _print(name, part)
    return 0


def _data(options: argparse.Namespace) -> Path:
    if options.data is None:
        raise DataError("give the folder of gsm8k.csv and mmlu.csv with --data or ROUTELLM_DATA")
    return Path(options.data)


def _write(out: Path, name: str, part: BenchmarkPart, seeds: int) -> None:
    """Write the results of a part, and keep those of the others. Raises OSError."""
    old = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    parts: dict[str, Any] = {**old.get("parts", {})}
    parts[name] = {
        "machine": environment.machine(),
        "versions": environment.versions("numpy", "faiss-cpu"),
        "seeds": seeds,
        "rows": part.rows,
        "goals": part.goals,
    }
    measured = [key for key in PARTS if key in parts]
    goals = [{"part": key, **goal} for key in measured for goal in parts[key]["goals"]]
    command = "python -m benchmarks.routing --data FOLDER"
    results.write(out, {"command": command, "goals": goals, "parts": {key: parts[key] for key in measured}})


def _print(name: str, part: BenchmarkPart) -> None:
    console = Console(width=160)
    columns = list(dict.fromkeys(key for row in part.rows for key in row))
    table = Table(*columns, title=name)
    for row in part.rows:
        table.add_row(*(_cell(row.get(column, "")) for column in columns))
    console.print(table)
    for goal in part.goals:
        met = "met" if goal["met"] else "NOT met"
        console.print(f"{met}: {goal['name']}: {goal['value']} {goal.get('interval', '')} (goal {goal['goal']})")


def _cell(value: Any) -> str:
    """Return a value as text; of a mean with its interval only the mean."""
    return f"{value[0]:.3f}" if isinstance(value, list) else str(value)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.routing", description=__doc__)
    data = "the folder of gsm8k.csv and mmlu.csv (default: the environment's ROUTELLM_DATA)"
    parser.add_argument("--data", type=Path, default=os.environ.get("ROUTELLM_DATA"), help=data)
    parser.add_argument("--parts", nargs="+", choices=[*PARTS], help=f"default: {' '.join(DEFAULT)}")
    learners = "of the part routellm, next to the policy (default: all)"
    parser.add_argument("--learners", nargs="+", choices=[*routellm.LEARNERS], help=learners)
    parser.add_argument("--seeds", type=int, default=5, help="orders of the stream (default: %(default)s)")
    episodes = "how many the memory holds while latency is measured (default: %(default)s)"
    parser.add_argument("--episodes", type=int, default=100_000, help=episodes)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="keeps rows and vectors (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results go (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
