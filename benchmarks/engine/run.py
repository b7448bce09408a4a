"""Run cells, group by group, and keep the rows of each as soon as it is finished."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

from benchmarks.engine import rows as kept
from benchmarks.engine.cells import Cell, HeadCell, State, TurnCell, UserCell, groups
from benchmarks.engine.chats import Chats
from benchmarks.engine.goals import LEAST_ROUNDS, MOST_ROUNDS, Goals, engine_goals, undecided
from benchmarks.engine.measure import WARM_UP, measure, measure_prepared, measure_user, step_times, with_bounds
from benchmarks.engine.names import OURS
from benchmarks.engine.paired import Rounds
from benchmarks.engine.rows import EngineRow, Stamp
from benchmarks.engine.start import MODELS, TINY, Place, started, takes_part
from benchmarks.engine.system import RequestLoad, System
from benchmarks.engine.systems.ceiling import Ceiling
from benchmarks.engine.workload import loads, task_load, task_loads, turn_loads

ROUNDS = Rounds(least=LEAST_ROUNDS, most=MOST_ROUNDS, seconds=60)
FURTHER = Rounds(least=LEAST_ROUNDS, most=MOST_ROUNDS, seconds=300)
_chats = cache(Chats.of)  # Reads a model's vocabulary once and keeps it in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkPlan:
    """What to run, and where rows are kept."""

    place: Place
    cells: tuple[Cell, ...]
    # Rows of earlier rounds, by cell. Such a cell gets further rounds of the systems that are undecided.
    before: Mapping[str, Sequence[EngineRow]] = field(default_factory=dict)
    file: Path  # the file that keeps the rows of finished cells
    stamp: Stamp
    engine: str  # the hash of the engine's code
    goals: Goals = engine_goals
    rounds: Rounds = ROUNDS
    seconds: float | None = None  # after this time no further cell begins; None for no limit
    tell: Callable[[str], None]  # Prints a line about progress


async def run(plan: BenchmarkPlan) -> list[Cell]:
    """Measure the cells, and return those for which there was not enough time. A cell that has begun is finished."""
    begun = time.monotonic()
    left = list(plan.cells)
    for group in groups(plan.cells):
        if _over(plan, begun):
            break
        async with started(_place(plan, group), group, plan.tell) as systems:
            for cell in group:
                if _over(plan, begun):
                    break
                cell_begun = time.monotonic()
                kept.append(plan.file, plan.stamp, plan.engine, cell, await _cell(plan, cell, systems))
                left.remove(cell)
                plan.tell(f"{cell.name}: {time.monotonic() - cell_begun:.0f} s; {len(left)} cells to go")
    return left


def _over(plan: BenchmarkPlan, begun: float) -> bool:
    return plan.seconds is not None and time.monotonic() - begun >= plan.seconds


def _place(plan: BenchmarkPlan, group: Sequence[Cell]) -> Place:
    """Return the place with only those systems that the cells of the group still need."""
    if any(cell.name not in plan.before for cell in group):
        return plan.place
    wanted = {name for cell in group for name in _undecided(plan, cell)}
    needed = (system for system in plan.place.systems if any(name.startswith(system) for name in wanted))
    return replace(plan.place, systems=tuple(needed))


def _undecided(plan: BenchmarkPlan, cell: Cell) -> set[str]:
    """Return the systems that do further rounds."""
    return undecided(plan.before[cell.name], plan.goals).get(cell.name, set())


async def _cell(plan: BenchmarkPlan, cell: Cell, systems: Sequence[System]) -> list[EngineRow]:
    partners = [system for system in systems if takes_part(OURS if plan.place.libraries else system.name, cell)]
    before = plan.before.get(cell.name)
    if before is None:
        return await _bounded(plan.place, cell, await _measured(plan, cell, partners))
    wanted = _undecided(plan, cell)
    partners = [system for system in partners if system.name in wanted]
    rows = await _measured(plan, cell, partners, [row for row in before if row.system in wanted])
    later = {(row.system, row.state): row for row in rows}
    all_rounds = [row.then(later[key]) if (key := (row.system, row.state)) in later else row for row in before]
    return await _bounded(plan.place, cell, all_rounds)


async def _measured(
    plan: BenchmarkPlan, cell: Cell, systems: Sequence[System], before: Sequence[EngineRow] = ()
) -> list[EngineRow]:
    """Return the rows of the rounds that follow those of the rows `before`."""
    if isinstance(cell, UserCell):
        chats = _chats(plan.place.setup((cell,)).model)
        return await measure_user(cell, systems, partial(chats.prose_loads, cell), plan.rounds, plan.tell, before)
    if isinstance(cell, TurnCell):
        turns = partial(turn_loads, cell, MODELS[cell.model].following)
        return await measure_prepared(cell, systems, turns, plan.rounds, plan.tell, before)
    if isinstance(cell, HeadCell):
        headed = partial(_chats(TINY).prepared_load, cell)
        return await measure_prepared(cell, systems, headed, plan.rounds, plan.tell, before)
    if cell.task is None:
        return await measure(cell, systems, _loads(cell), plan.rounds, plan.tell, before)
    tasks = partial(task_loads, cell, MODELS[cell.model].following)
    return await measure_prepared(cell, systems, tasks, plan.rounds, plan.tell, before)


def _loads(cell: Cell) -> Callable[[int], dict[State, RequestLoad]]:
    """Return the function that makes the loads of the cell's rounds. The round that warms up has no long prefix."""
    model = MODELS.get(cell.model)
    if model is not None:
        short = replace(cell, prefix=0)
        return lambda number: loads(short if number == WARM_UP else cell, model.following, number)
    chats = _chats(TINY)
    return lambda number: {"cold": chats.load(cell, number)}


async def _bounded(place: Place, cell: Cell, rows: Sequence[EngineRow]) -> list[EngineRow]:
    """Add to rows of single requests with a task the best speed-up that speculation could reach, by measured steps."""
    if cell.task is None or cell.width > 1 or not rows:
        return list(rows)
    model, draft = MODELS[cell.model], place.drafter(cell.task, cell.model)
    rounds = max(len(row.seconds) for row in rows)
    measured = [task_load(cell, model.following, number) for number in range(rounds)]
    setup = replace(place.setup((cell,)), width=1, context=2 * cell.context)
    files = (setup.model, draft.file(place.folder / "models"))
    target, drafter = (Ceiling(replace(setup, model=file), split=True) for file in files)
    try:
        times = step_times(target, drafter, [load.prompts[0].tokens for load in measured])
    finally:
        await target.close()
        await drafter.close()
    return with_bounds(rows, measured, (model.following, draft.following), times)
