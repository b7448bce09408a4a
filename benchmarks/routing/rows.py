"""Keep the rows of the parts as they come, so that a stopped run continues where it was."""

import ast
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from orchestrator.bench.goals import Goal

Row = dict[str, Any]
SAID = 300  # how many characters of a row are printed


@dataclass(frozen=True, slots=True)
class BenchmarkPart:
    """What a part of the benchmark has found."""

    rows: list[Row]
    goals: list[Row]


@dataclass(slots=True)
class RowLog:
    """A file of rows, each under a key. Those that other sources have made are not read."""

    file: Path
    say: Callable[[str], None] = print
    _known: dict[str, Row] | None = field(init=False, default=None)
    _writing: Lock = field(init=False, default_factory=Lock)

    def get(self, key: tuple[str, ...], make: Callable[[], Row], *files: Path) -> Row:
        """Return the row with this key, made now unless it is in the log. `files` are sources that it depends on.

        Raises OSError.
        """
        row = self.find(key, *files)
        return self.add(key, make(), *files) if row is None else row

    def find(self, key: tuple[str, ...], *files: Path) -> Row | None:
        """Return the row with this key, or None if it is not in the log."""
        return self.known.get(_name(key, files))

    def add(self, key: tuple[str, ...], row: Row, *files: Path) -> Row:
        """Keep a row under this key, and return it. Raises OSError."""
        name = _name(key, files)
        self.known[name] = row
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self._writing, self.file.open("a", encoding="utf-8") as file:
            file.write(f"\n{json.dumps([name, row])}")  # a line that was cut off stays one of its own
        self.say(f"{' '.join(key)}: {str(row)[:SAID]}")
        return row

    @property
    def known(self) -> dict[str, Row]:
        """Return the rows of the file by their names, without a line that was cut off when its writer was killed."""
        if self._known is None:
            self._known = {}
            for line in self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else ():
                try:
                    name, row = json.loads(line)
                except ValueError:
                    continue
                self._known[name] = row
        return self._known


def _name(key: tuple[str, ...], files: Sequence[Path]) -> str:
    return json.dumps([*key, source_digest(*files)])


def source_digest(*files: Path) -> str:
    """Return a hash of the code of Python files, without docstrings and comments."""
    trees = [ast.parse(file.read_bytes()) for file in files]
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [line for line in body if not _is_text(line)]  # type: ignore[attr-defined]
    return hashlib.sha256("".join(map(ast.dump, trees)).encode()).hexdigest()[:12]


def _is_text(line: ast.AST) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)


def interval(values: list[float]) -> tuple[float, float, float]:
    """Return the mean of a few seeds' values, and its 95 % interval by Student's t."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, mean, mean
    t = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}.get(len(values), 2.0)
    half = t * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return mean, mean - half, mean + half


def goal_with_interval(goal: Goal, low: float, high: float) -> Row:
    """Return a goal as it is written, with its interval. It is met if the interval's better end reaches it."""
    sign, bound = goal.goal.split(" ", 1)
    better = high >= float(bound) if sign in (">=", ">") else low <= float(bound)
    return {
        "name": goal.name,
        "value": goal.value,
        "interval": [round(low, 4), round(high, 4)],
        "goal": goal.goal,
        "met": better,
    }
