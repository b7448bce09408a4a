"""Hold what was measured: rows, and what keeps those of finished cells, so that a later run goes on."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from benchmarks.engine.cells import Cell, State

Stamp = dict[str, Any]
"""What measurements depend on besides the cell and our engine; those with another stamp do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one system did in one cell and state: `seconds` of each round, and the tokens it made in a round, of
    `requests` out of `width`: a system that did a part took at least so long for the whole.

    Rounds of different systems with the same index had the same prompts, one after the other; one system may have done
    more of them than another. `llama_seconds` and `own_seconds` are sums over the rounds of time inside llama.cpp
    and of our own time around it. `bound` is the best speed-up that speculation could bring. `split_cache` says how our
    engine's cache was laid out in the last round; it may have begun otherwise. `lost` are the attempts that came to
    nothing, in all rounds.
    """

    cell: str
    model: str
    width: int
    requests: int
    prefix: int
    state: State
    system: str
    tokens: int
    seconds: tuple[float, ...]
    task: str | None = None
    llama_seconds: float = 0.0
    own_seconds: float = 0.0
    bound: float | None = None
    split_cache: bool | None = None
    lost: int = 0

    def then(self, later: "Row") -> "Row":
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
class Finished:
    """A cell's rows, and the hash of the engine that was measured in it."""

    engine: str
    rows: list[Row]


def read(file: Path, stamp: Stamp, cells: Iterable[Cell]) -> dict[str, Finished]:
    """Return the rows of each of the cells that is finished: measured as it is now, with this stamp; the last ones."""
    if not file.exists():
        return {}
    wanted = {cell.name: asdict(cell) for cell in cells}
    found: dict[str, Finished] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        name = entry["name"]
        if entry["stamp"] == stamp and entry["cell"] == wanted.get(name):
            rows = [Row(**{**row, "seconds": tuple(row["seconds"])}) for row in entry["rows"]]
            found[name] = Finished(entry["engine"], rows)
    return found


def published(file: Path, stamp: Stamp, cells: Iterable[Cell]) -> dict[str, Finished]:
    """Return the same of results that were written before: a new checkout goes on from what is committed there."""
    if not file.exists():
        return {}
    results = json.loads(file.read_text(encoding="utf-8"))
    if {key: results.get(key) for key in stamp} != stamp:
        return {}
    same = {cell.name for cell in cells if results["cells"]["measured"].get(cell.name) == asdict(cell)}
    names = [field.name for field in fields(Row)]
    found: dict[str, Finished] = {}
    for row in results["rows"]:
        if (cell := row["cell"]) in same:
            kept = {name: row[name] for name in names if name in row}
            finished = found.setdefault(cell, Finished(results["engines"][cell], []))
            finished.rows.append(Row(**{**kept, "seconds": tuple(kept["seconds"])}))
    return found


def append(file: Path, stamp: Stamp, engine: str, cell: Cell, rows: Iterable[Row]) -> None:
    """Add a finished cell to the file, whole or not at all. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    known = {"name": cell.name, "cell": asdict(cell), "stamp": stamp, "engine": engine}
    entry = known | {"rows": [asdict(row) for row in rows]}
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(f"{before}{json.dumps(entry)}\n", encoding="utf-8")
    unfinished.replace(file)
