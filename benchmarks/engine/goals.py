"""Say what the engine has to reach, and whether the measured rows show it. Pure.

Every ratio is the median of paired rounds. The value of a goal is that of the cell where it is furthest from being met.
A goal is not met without rows, nor with fewer than LEAST_ROUNDS rounds of any. The embedded models have no goals.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.engine.cells import BETWEEN, EMBEDDED
from benchmarks.engine.names import (
    EXAMPLE,
    METHODS,
    OURS,
    POOLED,
    SERIAL,
    SERVER,
    SETTINGS,
    SPLIT,
    speculating,
)
from benchmarks.engine.paired import Ratio, ratio
from benchmarks.engine.rows import Row

LEAST_ROUNDS = 5
OF_CEILING = 0.95
OF_BOUND = 0.9
NEVER_SLOWER = 0.98
OWN_SHARE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A goal and what came out: it is met where all its `cells` reach it, and `reached` do.

    `where` is the cell that decides, `interval` the 95 % interval of its ratio.
    """

    name: str
    value: float | None
    goal: str
    met: bool
    where: str | None = None
    interval: tuple[float, float] | None = None
    cells: int = 0
    reached: int = 0


@dataclass(frozen=True, slots=True)
class _Found:
    """A cell's value for a goal."""

    value: float
    where: str
    rounds: int
    interval: tuple[float, float] | None = None


class Table:
    """Rows by cell, state and system."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = [row for row in rows if row.model != EMBEDDED]
        self._found = {(row.cell, row.state, row.system): row for row in self.rows}

    def beside(self, row: Row, system: str, state: str | None = None) -> Row | None:
        """Return what another system did in the same cell, and in the same state unless one is given."""
        return self._found.get((row.cell, state or row.state, system))

    def of(self, system: str, *, task: bool = False) -> Iterator[Row]:
        """Yield the rows of a system, in cells with or without a task."""
        return (row for row in self.rows if row.system == system and (row.task is not None) is task)


def goals(rows: Iterable[Row]) -> list[Goal]:
    """Return all goals."""
    table = Table(rows)
    ours = [row for row in table.of(OURS) if row.width != BETWEEN]
    warm = [row for row in ours if row.state == "warm" or not row.prefix]
    wide = [row for row in ours if row.width == 16 and row.state == "cold"]
    fan_out = [row for row in wide if row.prefix == 1024]
    return [
        _least("ours ÷ ceiling with the same KV layout", _against_ceiling(table, ours), OF_CEILING),
        _least("ours ÷ llama-server, both warm", _against(table, warm, SERVER), 1.0),
        _least("ours ÷ example server", _against(table, ours, EXAMPLE), 1.0),
        _least("ours ÷ llama-server, both cold, 16 requests", _against(table, wide, SERVER), 1.5),
        _least("ours ÷ llama-server, both cold, 16 requests, prefix 1024", _against(table, fan_out, SERVER), 6.0),
        _least("ours ÷ one after the other, any width", _against(table, list(table.of(OURS)), SERIAL), NEVER_SLOWER),
        _least("speculation ÷ its bound", _of_bound(table), OF_BOUND),
        _least("speculation ÷ llama-server's", _speculation(table, _of_server), 1.0),
        _least("speculation ÷ no speculation", _speculation(table, _of_none), NEVER_SLOWER),
        _most("own time per step outside llama.cpp", _own_shares(table), OWN_SHARE),
    ]


def speed(row: Row, other: Row) -> Ratio:
    """Return how much faster `row` is than `other`, which did the same work."""
    return ratio(other.seconds, row.seconds)


def own_share(row: Row) -> float | None:
    """Return the part of our steps' time that was not spent inside llama_decode; None for other systems."""
    whole = row.llama_seconds + row.own_seconds
    return row.own_seconds / whole if whole else None


def _against(table: Table, rows: Sequence[Row], system: str) -> list[_Found]:
    pairs = ((row, table.beside(row, system)) for row in rows)
    return [_faster(row, other) for row, other in pairs if other is not None]


def _against_ceiling(table: Table, rows: Sequence[Row]) -> list[_Found]:
    """Compare with the ceiling that has the layout which our engine came to."""
    return [found for row in rows for found in _against(table, [row], SPLIT if row.split_cache else POOLED)]


def _faster(row: Row, other: Row) -> _Found:
    found = speed(row, other)
    where = f"{row.cell}, {row.state}" + (f", {row.system}" if row.task else "")
    return _Found(found.median, where, found.rounds, (found.low, found.high))


def _speculation(table: Table, compare: Callable[[Table, Row, str], _Found | None]) -> list[_Found]:
    found = []
    for method in METHODS:
        for row in table.of(speculating(OURS, method), task=True):
            value = compare(table, row, method)
            if value is not None:
                found.append(value)
    return found


def _of_none(table: Table, row: Row, _: str) -> _Found | None:
    plain = table.beside(row, OURS)
    return None if plain is None else _faster(row, plain)


def _of_server(table: Table, row: Row, method: str) -> _Found | None:
    """Compare with the better of llama-server's settings."""
    others = [table.beside(row, speculating(SERVER, method, settings)) for settings in SETTINGS]
    return min((_faster(row, other) for other in others if other), key=lambda found: found.value, default=None)


def _of_bound(table: Table) -> list[_Found]:
    found = []
    for method in METHODS:
        for row in table.of(speculating(OURS, method), task=True):
            faster = _of_none(table, row, method)
            if row.bound is not None and faster is not None:
                found.append(_Found(faster.value / row.bound, faster.where, faster.rounds))
    return found


def _own_shares(table: Table) -> list[_Found]:
    shares = ((row, own_share(row)) for row in table.rows)
    return [
        _Found(share, f"{row.cell}, {row.state}, {row.system}", len(row.seconds))
        for row, share in shares
        if share is not None
    ]


def _least(name: str, found: Sequence[_Found], goal: float) -> Goal:
    worst = min(found, key=lambda each: each.value, default=None)
    return _goal(name, found, worst, f">= {goal}", sum(each.value >= goal for each in found))


def _most(name: str, found: Sequence[_Found], goal: float) -> Goal:
    worst = max(found, key=lambda each: each.value, default=None)
    return _goal(name, found, worst, f"<= {goal}", sum(each.value <= goal for each in found))


def _goal(name: str, found: Sequence[_Found], worst: _Found | None, goal: str, reached: int) -> Goal:
    enough = all(each.rounds >= LEAST_ROUNDS for each in found)
    return Goal(
        name=name,
        value=None if worst is None else round(worst.value, 4),
        goal=goal,
        met=worst is not None and reached == len(found) and enough,
        where=None if worst is None else worst.where,
        interval=None if worst is None else worst.interval,
        cells=len(found),
        reached=reached,
    )
