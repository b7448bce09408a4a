"""Rows hold what was measured. Those of finished cells are kept in a file, so that a later run can continue."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from benchmarks.engine.cells import Cell, State
from orchestrator.bench import environment

# What else measurements depend on than the cell and our engine. Measurements with another stamp do not count.
Stamp = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRow:
    """What one system did in one cell and state.

    Rounds of different systems with the same index had the same prompts, and followed each other. One system may have
    done more rounds than another.
    """

    cell: str
    model: str
    width: int
    # How many of the cell's `width` requests the system got. With fewer than all, all would have taken it longer.
    requests: int
    prefix: int
    state: State
    system: str
    tokens: int  # the tokens made in a round
    seconds: tuple[float, ...]  # the time of each round
    task: str | None = None
    llama_seconds: float = 0.0  # the time inside llama.cpp in all rounds, where it is known
    own_seconds: float = 0.0  # the time of our engine's own steps around it in all rounds, where it is known
    bound: float | None = None  # the best speed-up that speculation could reach
    # Whether our engine's cache was split into streams in the last round; it may have changed before.
    split_cache: bool | None = None
    lost: int = 0  # how many attempts failed, in all rounds

    def then(self, later: "EngineRow") -> "EngineRow":
        """Return these rounds and those of `later`, which came after them."""
        return replace(
            self,
            seconds=self.seconds + later.seconds,
            llama_seconds=self.llama_seconds + later.llama_seconds,
            own_seconds=self.own_seconds + later.own_seconds,
            split_cache=later.split_cache,
            lost=self.lost + later.lost,
        )


@dataclass(frozen=True, slots=True)
class MeasuredCell:
    """The rows of a finished cell, the hash of the engine that was measured, and the machine."""

    engine: str
    rows: list[EngineRow]
    machine: Mapping[str, Any] = field(default_factory=environment.machine)


def read(file: Path, stamp: Stamp, cells: Iterable[Cell]) -> dict[str, MeasuredCell]:
    """Return the last rows of each of the cells that was measured with its current definition and this stamp."""
    if not file.exists():
        return {}
    wanted = {cell.name: asdict(cell) for cell in cells}
    by_name: dict[str, MeasuredCell] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        name = entry["name"]
        if entry["stamp"] == stamp and entry["cell"] == wanted.get(name):
            rows = [EngineRow(**{**row, "seconds": tuple(row["seconds"])}) for row in entry["rows"]]
            by_name[name] = MeasuredCell(entry["engine"], rows, entry["stamp"].get("machine", {}))
    return by_name


def published(file: Path, stamp: Stamp, cells: Iterable[Cell]) -> dict[str, MeasuredCell]:
    """Return the same from published results, so that a new checkout can continue from what is committed.

    The cells may be of other machines, since what is compared was measured in pairs, and have other numbers of rounds.
    """
    if not file.exists():
        return {}
    results = json.loads(file.read_text(encoding="utf-8"))
    if any(results.get(key) != value for key, value in stamp.items() if key not in ("machine", "rounds")):
        return {}
    same = {cell.name for cell in cells if results["cells"]["measured"].get(cell.name) == asdict(cell)}
    names = [each.name for each in fields(EngineRow)]
    by_name: dict[str, MeasuredCell] = {}
    for row in results["rows"]:
        if (cell := row["cell"]) in same:
            values = {name: row[name] for name in names if name in row}
            machine = results.get("machines", {}).get(cell, results["machine"])
            finished = by_name.setdefault(cell, MeasuredCell(results["engines"][cell], [], machine))
            finished.rows.append(EngineRow(**{**values, "seconds": tuple(values["seconds"])}))
    return by_name


def lost(file: Path, document: Mapping[str, Any], cells: Iterable[Cell]) -> list[str]:
    """Return which of these cells published results have, and a document that would replace them has not."""
    if not file.exists():
        return []
    wanted, after = [asdict(cell) for cell in cells], document["cells"]["measured"]
    measured = json.loads(file.read_text(encoding="utf-8"))["cells"]["measured"]
    return [name for name, cell in measured.items() if cell in wanted and after.get(name) != cell]


def append(file: Path, stamp: Stamp, engine: str, cell: Cell, rows: Iterable[EngineRow]) -> None:
    """Add a finished cell to the file, completely or not at all. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    head = {"name": cell.name, "cell": asdict(cell), "stamp": stamp, "engine": engine}
    entry = head | {"rows": [asdict(row) for row in rows]}
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(f"{before}{json.dumps(entry)}\n", encoding="utf-8")
    unfinished.replace(file)
