"""Define the goals of the benchmark, and decide whether the measured rows reach them. Pure.

A ratio is the median over paired rounds; if two systems did different numbers of rounds, over those that both did. It
is judged by its 95 % interval: it reaches a goal if the favourable end of the interval does, which is the upper end
for a minimum, and the lower end for a maximum. So a cell misses a goal only if the rounds
show it beyond noise. `undecided` names the cells whose interval contains the goal, on whichever side of it their median
is; they can be given further rounds. A value without an interval has to reach the goal itself. The value of a goal is
the worst among the cells that miss it, or among all cells if none does. If a system got only a part of the requests,
its time counts as the time for all of them, which favours it. A goal needs at least LEAST_ROUNDS rounds, and is not met
without rows. The embedded models have no goals,
except for drafting with a head.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.engine.cells import BETWEEN, EMBEDDED, HEADED, Busy, State, keeps_otherwise
from benchmarks.engine.names import (
    EXAMPLE,
    METHODS,
    OURS,
    POOLED,
    SERIAL,
    SERVER,
    SETTINGS,
    SPINNING,
    SPLIT,
    speculating,
)
from benchmarks.engine.paired import Ratio, ratio
from benchmarks.engine.rows import EngineRow

LEAST_ROUNDS, MOST_ROUNDS = 5, 31
OF_CEILING = 0.95
OF_BOUND = 0.9
NEVER_SLOWER = 0.98
WITH_HEAD = 1.3
OWN_SHARE = 0.02
SHARED = 5.0
WHEN_BUSY = 3.0
KEPT_OTHERWISE = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineGoal:
    """A goal and the result."""

    name: str
    value: float | None  # the value of the cell `where`, the median of a ratio; None if nothing was measured
    goal: str  # the accepted values, such as ">= 0.95"
    met: bool  # whether all cells reach the goal
    where: str | None = None  # the cell, state and system with the worst value
    interval: tuple[float, float] | None = None  # the 95 % interval of the value, if it is a ratio
    cells: int = 0  # how many values were found for the goal
    reached: int = 0  # how many of them reach it


@dataclass(frozen=True, slots=True)
class FoundValue:
    """The value of a cell for a goal."""

    value: float
    where: str
    rounds: int
    interval: tuple[float, float] | None = None  # the 95 % interval, for a ratio
    # For a ratio, the rows that it was computed from, or may be computed from after further rounds.
    rows: tuple[EngineRow, ...] = ()

    def over(self, bound: float) -> "FoundValue":
        """Return the ratio divided by a bound."""
        interval = self.interval and (self.interval[0] / bound, self.interval[1] / bound)
        return replace(self, value=self.value / bound, interval=interval)


@dataclass(frozen=True, slots=True)
class WantedGoal:
    """A goal, and the values that were found for it."""

    name: str
    goal: float
    found: Sequence[FoundValue]
    least: bool = True  # whether values should be at least `goal`; at most, otherwise

    def judged(self, value: FoundValue) -> float:
        """Return the number that has to reach the goal: the favourable end of the interval, or the value."""
        low, high = value.interval or (value.value, value.value)
        return high if self.least else low

    def reached(self, value: FoundValue) -> bool:
        """Return whether a value reaches the goal, with enough rounds."""
        fine = self.judged(value) >= self.goal if self.least else self.judged(value) <= self.goal
        return fine and value.rounds >= LEAST_ROUNDS

    @property
    def undecided(self) -> Iterator[FoundValue]:
        """Yield the ratios whose interval contains the goal and that may get further rounds."""
        for each in self.found:
            if each.interval and each.interval[0] < self.goal < each.interval[1] and each.rounds < MOST_ROUNDS:
                yield each


class Table:
    """Rows by cell, state and system."""

    def __init__(self, rows: Iterable[EngineRow]) -> None:
        self.rows = [row for row in rows if row.model != EMBEDDED]
        self._found = {(row.cell, row.state, row.system): row for row in self.rows}

    def beside(self, row: EngineRow, system: str, state: State | None = None) -> EngineRow | None:
        """Return the row of another system in the same cell, and in the same state unless another is given."""
        return self._found.get((row.cell, state or row.state, system))

    def of(self, system: str, *, task: bool = False) -> Iterator[EngineRow]:
        """Yield the rows of a system, in cells with or without a task."""
        return (row for row in self.rows if row.system == system and (row.task is not None) is task)


# Returns a suite's goals with their values from a table: `engine_goals` or `user_goals`.
Goals = Callable[[Table], list[WantedGoal]]


def goals(rows: Iterable[EngineRow], wanted: Goals) -> list[EngineGoal]:
    """Return the goals of a suite and their results."""
    return [judge(each) for each in wanted(Table(rows))]


def undecided(rows: Iterable[EngineRow], wanted: Goals) -> dict[str, set[str]]:
    """Return the cells in which a ratio's interval contains a goal, each with the systems that do further rounds.

    Whether the median is on the good or the bad side of the goal plays no part. Systems of a ratio that have done
    different numbers of rounds cannot be paired in further ones. If there are no others, the set is empty: the cell has
    to be measured again.
    """
    rounds_by_cell: dict[str, dict[str, int]] = {}
    for goal in wanted(Table(rows)):
        for each in goal.undecided:
            rounds = {row.system: len(row.seconds) for row in each.rows}
            paired = rounds_by_cell.setdefault(each.rows[0].cell, {})
            if len({*rounds.values()}) == 1:
                paired |= rounds
    return {
        cell: {system for system, count in paired.items() if count == max(paired.values())}
        for cell, paired in rounds_by_cell.items()
    }


def engine_goals(table: Table) -> list[WantedGoal]:
    """Return the goals of the engine by itself."""
    kinds = [row for row in table.of(OURS) if keeps_otherwise(row.model)]
    turns = [row for row in kinds if row.cell.endswith("/turn")]
    unrelated = [row for row in kinds if not row.prefix and row not in turns]
    sharing = [row for row in kinds if row.prefix and row.state == "cold"]
    server = "hybrid and windowed ÷ llama-server"
    ours = [row for row in table.of(OURS) if row.width != BETWEEN and not keeps_otherwise(row.model)]
    warm = [row for row in ours if row.state == "warm" or not row.prefix]
    wide = [row for row in ours if row.width == 16 and row.state == "cold"]
    fan_out = [row for row in wide if row.prefix == 1024]
    serial = _against(table, list(table.of(OURS)), SERIAL)
    return [
        WantedGoal("ours ÷ ceiling with the same KV layout", OF_CEILING, _against_ceiling(table, ours)),
        WantedGoal("ours ÷ llama-server, both warm", 1.0, _against(table, warm, SERVER)),
        WantedGoal("ours ÷ example server", 1.0, _against(table, ours, EXAMPLE)),
        WantedGoal("ours ÷ llama-server, both cold, 16 requests", 1.5, _against(table, wide, SERVER)),
        WantedGoal("ours ÷ llama-server, both cold, 16 requests, prefix 1024", 6.0, _against(table, fan_out, SERVER)),
        WantedGoal("ours ÷ one after the other, any width", NEVER_SLOWER, serial),
        WantedGoal(f"{server}, 16 sharing 1,000 tokens", KEPT_OTHERWISE, _against(table, sharing, SERVER)),
        WantedGoal(f"{server}, second turn", 1.0, _against(table, turns, SERVER)),
        WantedGoal(f"{server}, unrelated", 1.0, _against(table, unrelated, SERVER)),
        WantedGoal("speculation ÷ its bound", OF_BOUND, _of_bound(table)),
        WantedGoal("speculation ÷ llama-server's", 1.0, _speculation(table, _of_server)),
        WantedGoal("speculation ÷ no speculation", NEVER_SLOWER, _speculation(table, _of_none)),
        *_with_head(table, "mtp", "MTP head"),
        *_with_head(table, "eagle", "EAGLE-3 head"),
        WantedGoal("own time per step outside llama.cpp", OWN_SHARE, _own_shares(table), least=False),
    ]


def user_goals(table: Table) -> list[WantedGoal]:
    """Return the goals of the user's own path: chats over HTTP, and runs of steps, also next to busy loops."""
    server, shared = "ours ÷ llama-server over HTTP", "16 sharing a document"
    spinning = _against(table, _served(table, "http/own/"), SPINNING)
    return [
        WantedGoal(f"{server}, own texts", 1.0, _against(table, _served(table, "http/own/"), SERVER)),
        WantedGoal(f"{server}, {shared}, new", SHARED, _against(table, _served(table, "http/shared/", "cold"), SERVER)),
        WantedGoal(f"{server}, {shared}, held", 1.0, _against(table, _served(table, "http/shared/", "warm"), SERVER)),
        WantedGoal(f"{server}, one core busy", 1.0, _against(table, _served(table, "busy/one/"), SERVER)),
        WantedGoal(f"{server}, each core busy", 1.0, _against(table, _served(table, "busy/each/"), SERVER)),
        WantedGoal("three steps, one core busy ÷ idle", WHEN_BUSY, _slower(table, "one"), least=False),
        WantedGoal("three steps, each core busy ÷ idle", WHEN_BUSY, _slower(table, "each"), least=False),
        WantedGoal("attempts that were lost", 0, _lost(table), least=False),
        WantedGoal("ours ÷ ours with threads that spin, idle machine", NEVER_SLOWER, spinning),
    ]


def _served(table: Table, cells: str, state: State | None = None) -> list[EngineRow]:
    """Return our rows of the cells whose names begin with `cells`, in one state or in all."""
    return [row for row in table.of(OURS) if row.cell.startswith(cells) and state in (None, row.state)]


def _slower(table: Table, busy: Busy) -> list[FoundValue]:
    """Return how much longer runs of steps take next to busy loops."""
    pairs = [(row, table.beside(row, OURS, "idle")) for row in table.of(OURS) if row.state == busy]
    return [
        replace(_faster(idle, row), where=f"{row.cell}, {row.state}, {row.system}")
        for row, idle in pairs
        if idle is not None
    ]


def _lost(table: Table) -> list[FoundValue]:
    return [FoundValue(row.lost, f"{row.cell}, {row.state}", len(row.seconds)) for row in table.of(OURS)]


def speed(row: EngineRow, other: EngineRow) -> Ratio:
    """Return how much faster `row` is than `other`, which did the same work, in the rounds that both did."""
    both = min(len(row.seconds), len(other.seconds))
    return ratio(other.seconds[:both], row.seconds[:both])


def own_share(row: EngineRow) -> float | None:
    """Return the part of our steps' time that was not spent inside llama.cpp; None for other systems."""
    whole = row.llama_seconds + row.own_seconds
    return row.own_seconds / whole if whole else None


def _against(table: Table, rows: Sequence[EngineRow], system: str) -> list[FoundValue]:
    pairs = ((row, table.beside(row, system)) for row in rows)
    return [_faster(row, other) for row, other in pairs if other is not None]


def _against_ceiling(table: Table, rows: Sequence[EngineRow]) -> list[FoundValue]:
    """Compare with the ceiling that has the layout which our engine ended with. With further rounds it may end with the
    other one, so both ceilings belong to the ratio."""
    values = []
    for row in rows:
        ceilings = tuple(other for name in (SPLIT, POOLED) if (other := table.beside(row, name)))
        compared = _against(table, [row], SPLIT if row.split_cache else POOLED)
        values += [replace(each, rows=(row, *ceilings)) for each in compared]
    return values


def _faster(row: EngineRow, other: EngineRow) -> FoundValue:
    ratio = speed(row, other)
    where = f"{row.cell}, {row.state}" + (f", {row.system}" if row.task else "")
    return FoundValue(ratio.median, where, ratio.rounds, (ratio.low, ratio.high), (row, other))


def _speculation(table: Table, compare: Callable[[Table, EngineRow, str], FoundValue | None]) -> list[FoundValue]:
    values = []
    for method in METHODS:
        for row in table.of(speculating(OURS, method), task=True):
            value = compare(table, row, method)
            if value is not None:
                values.append(value)
    return values


def _with_head(table: Table, method: str, name: str) -> Iterator[WantedGoal]:
    values = [(row.width, _of_none(table, row, method)) for row in table.of(speculating(OURS, method))]
    alone = [value for width, value in values if value is not None and width == 1]
    several = [value for width, value in values if value is not None and width > 1]
    yield WantedGoal(f"{name} ÷ no speculation, 1 request", WITH_HEAD, alone)
    yield WantedGoal(f"{name} ÷ no speculation, more requests", NEVER_SLOWER, several)


def _of_none(table: Table, row: EngineRow, _: str) -> FoundValue | None:
    plain = table.beside(row, OURS)
    return None if plain is None else _faster(row, plain)


def _of_server(table: Table, row: EngineRow, method: str) -> FoundValue | None:
    """Compare with the better of llama-server's settings."""
    beside = (table.beside(row, speculating(SERVER, method, settings)) for settings in SETTINGS)
    others = [other for other in beside if other]
    least = min((_faster(row, other) for other in others), key=lambda value: value.value, default=None)
    return least and replace(least, rows=(row, *others))


def _of_bound(table: Table) -> list[FoundValue]:
    values = []
    for method in METHODS:
        for row in table.of(speculating(OURS, method), task=True):
            faster = _of_none(table, row, method)
            if row.bound is not None and faster is not None:
                values.append(faster.over(row.bound))
    return values


def _own_shares(table: Table) -> list[FoundValue]:
    shares = ((row, own_share(row)) for row in table.rows if row.model not in HEADED.values())
    return [
        FoundValue(share, f"{row.cell}, {row.state}, {row.system}", len(row.seconds))
        for row, share in shares
        if share is not None
    ]


def judge(wanted: WantedGoal) -> EngineGoal:
    """Return the result of a goal: the worst value among those that miss it, or among all if none does."""
    values = wanted.found
    missed = [each for each in values if not wanted.reached(each)]
    decide = min if wanted.least else max
    worst = decide(missed or values, key=lambda each: each.value, default=None)
    return EngineGoal(
        name=wanted.name,
        value=None if worst is None else round(worst.value, 4),
        goal=f"{'>=' if wanted.least else '<='} {wanted.goal}",
        met=worst is not None and not missed,
        where=None if worst is None else worst.where,
        interval=None if worst is None else worst.interval,
        cells=len(values),
        reached=len(values) - len(missed),
    )
