"""Make the results and the printed tables from rows. Pure, except that it asks for the machine and its versions."""

import ast
import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.engine.cells import Cell
from benchmarks.engine.goals import EngineGoal, own_share, speed
from benchmarks.engine.models import DRAFTS, HYBRID, INSTEAD, LARGE, SMALL, SMOLLM2, WINDOWED
from benchmarks.engine.names import OURS
from benchmarks.engine.rows import EngineRow, MeasuredCell, Stamp
from benchmarks.engine.start import AGREEMENT, LONGEST, MOST_DRAFTS
from benchmarks.engine.workload import DECOYS, WRONG_WORDS
from orchestrator.bench import environment

PRODUCT = Path(__file__).parents[2] / "orchestrator"
ENGINE = PRODUCT / "engine"
# The folders of the product that take no part in a run that a benchmark starts itself.
ABOVE_RUNS = ("api", "cli", "service")
CONSTRUCTION = (
    "Generated models whose greedy text is known: each word is followed by one certain word. The 500 M model has the "
    "embedding, the first two layers and the output of its draft models, and further layers that add nothing, so that "
    "the pair agrees by construction; the draft models expect a wrong word after the given share of words. To copy: "
    "the prompt holds the text to come but for the given share of words. Free: it holds none of it, but misleading "
    "pairs of words. Speculation is measured on prompts that are computed already."
)
USER_PATH = (
    "Both servers are asked for the same chats at temperature 0 over OpenAI's chat API, each chat on a connection of "
    "its own. They have equally many slots, tokens a slot and threads. Cold: documents are new; warm: each document is "
    "held since the load before, and the questions are new. An answer that ends early counts by its tokens a second. "
    "Busy: a loop of normal priority on one core only, or one on each core, from before a load until after it. A run "
    "has three steps, each of which reads what the one before has written, and is compared with such a run on an idle "
    "machine."
)

_LAYOUTS = {None: "", True: ", split cache", False: ", pooled cache"}


class _WithoutDocstrings(ast.NodeTransformer):
    """Removes docstrings from a syntax tree, which contains no comments anyway."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        """Remove an expression that is only a string."""
        return None if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str) else node


def document(
    finished: Mapping[str, MeasuredCell],
    goals: Sequence[EngineGoal],
    stamp: Stamp,
    engine: str,
    cells: Sequence[Cell],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the results as they are written.

    `cells` are all cells of the suite, `engine` is the hash of the current code, and `about` are further entries: the
    command that measures them, the models.
    """
    return {
        **stamp,
        "engine": engine,
        "engines": {name: each.engine for name, each in finished.items()},
        "machines": {name: each.machine for name, each in finished.items()},
        "cells": {
            "measured": {cell.name: asdict(cell) for cell in cells if cell.name in finished},
            "left": [cell.name for cell in cells if cell.name not in finished],
        },
        **about,
        "rows": [_row(row) for each in finished.values() for row in each.rows],
        "goals": [
            {key: value for key, value in asdict(goal).items() if value is not None or key == "value"} for goal in goals
        ],
    }


def about_engine() -> dict[str, Any]:
    """Return the entries about how the engine by itself was measured."""
    return {
        "command": "make bench-engine",
        "models": {model.name: asdict(model.shape) for model in (SMALL, LARGE, HYBRID, WINDOWED, *DRAFTS.values())},
        "speculation": {
            "construction": CONSTRUCTION,
            "agreement of the draft model": AGREEMENT,
            "wrong words in a text to be copied": WRONG_WORDS,
            "misled words of a free answer": DECOYS,
            "longest n-gram": LONGEST,
            "most draft tokens": MOST_DRAFTS,
        },
    }


def about_user_path() -> dict[str, Any]:
    """Return the entries about how the user's own path was measured."""
    return {
        "command": "make bench-http",
        "models": {SMOLLM2.name: asdict(SMOLLM2), INSTEAD.name: asdict(INSTEAD.shape)},
        "construction": USER_PATH,
    }


def stamp(threads: int) -> Stamp:
    """Return what else measurements depend on than their cell and our engine: the machine, versions and threads."""
    return {
        "machine": environment.machine(),
        "versions": environment.versions("llama-cpp-python", "numpy"),
        "threads": threads,
    }


def source_hash(folder: Path = ENGINE, without: Collection[str] = ()) -> str:
    """Return a hash of the code in a folder without comments and docstrings; where it changed, cells are measured
    again. `without` names folders in it that are left out."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        if file.relative_to(folder).parts[0] in without:
            continue
        code = _WithoutDocstrings().visit(ast.parse(file.read_bytes()))
        digest.update(ast.unparse(code).encode())
    return digest.hexdigest()[:16]


def printed(rows: Sequence[EngineRow], goals: Iterable[EngineGoal]) -> str:
    """Return tables of all rows and of the goals, as text."""
    lines = [_line("cell", "state", "system", "seconds", "(least-most)", "tokens/s", "ours is faster by", "own time")]
    reference = {(row.cell, row.state): row for row in rows if row.system == OURS}
    lines += [_row_line(row, reference.get((row.cell, row.state))) for row in rows]
    if goal_lines := [_goal_line(goal) for goal in goals]:
        lines += ["", f"{'goal':62} {'value':>8} {'wanted':>8}  met", *goal_lines]
    return "\n".join(lines)


def _row(row: EngineRow) -> dict[str, Any]:
    middle = median(row.seconds)
    document = asdict(row) | {
        "median": round(middle, 6),
        "least": round(min(row.seconds), 6),
        "most": round(max(row.seconds), 6),
        "tokens_per_second": round(row.tokens / middle, 1),
    }
    share = own_share(row)
    if share is not None:
        document["own_share"] = round(share, 5)
    return document | {"seconds": [round(value, 6) for value in row.seconds]}


def _row_line(row: EngineRow, reference: EngineRow | None) -> str:
    middle = median(row.seconds)
    versus = ""
    if reference is not None and reference is not row:
        ratio = speed(reference, row)
        versus = f"{ratio.median:.3f} ({ratio.low:.3f}-{ratio.high:.3f})"
    share = own_share(row)
    return _line(
        row.cell,
        row.state,
        row.system + _LAYOUTS[row.split_cache] + (f", {row.requests} of them" if row.requests < row.width else ""),
        f"{middle:.3f}",
        f"({min(row.seconds):.3f}-{max(row.seconds):.3f})",
        f"{row.tokens / middle:.1f}",
        versus,
        "" if share is None else f"{share:.2%}",
    )


def _line(cell: str, state: str, system: str, seconds: str, spread: str, rate: str, versus: str, own: str) -> str:
    text = f"{cell:22} {state:5} {system:36} {seconds:>8} {spread:19} {rate:>9} {versus:>22} {own:>8}"
    return text.rstrip()


def _goal_line(goal: EngineGoal) -> str:
    value = "none" if goal.value is None else f"{goal.value:.3f}"
    interval = "" if goal.interval is None else f" ({goal.interval[0]:.3f}-{goal.interval[1]:.3f})"
    where = "" if goal.where is None else f"  reached by {goal.reached} of {goal.cells}; worst: {goal.where}{interval}"
    return f"{goal.name:62} {value:>8} {goal.goal:>8}  {'yes' if goal.met else 'NO'}{where}"
