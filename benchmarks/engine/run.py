"""Run cells, group by group, and keep the rows of each as soon as it is finished."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.engine import rows as kept
from benchmarks.engine.cells import Cell, State, groups
from benchmarks.engine.chats import Chats
from benchmarks.engine.goals import LEAST_ROUNDS
from benchmarks.engine.measure import WARM_UP, measure, measure_task, step_times, with_bounds
from benchmarks.engine.paired import Rounds
from benchmarks.engine.rows import Row, Stamp
from benchmarks.engine.start import MODELS, TINY, Place, started, takes_part
from benchmarks.engine.system import Load, System
from benchmarks.engine.systems.ceiling import Ceiling
from benchmarks.engine.workload import loads, task_load

ROUNDS = Rounds(least=LEAST_ROUNDS, most=31, seconds=120)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run: cells, for at most `seconds` in all, and where rows are kept."""

    place: Place
    cells: tuple[Cell, ...]
    file: Path
    stamp: Stamp
    rounds: Rounds = ROUNDS
    seconds: float | None = None
    tell: Callable[[str], None]


async def run(plan: Plan) -> list[Cell]:
    """Measure the cells, and return those that the time did not suffice for.

    Time is looked at between cells: one that has begun is finished.
    """
    begun = time.monotonic()
    left = list(plan.cells)
    for group in groups(plan.cells):
        if _over(plan, begun):
            break
        async with started(plan.place, group, plan.tell) as systems:
            for cell in group:
                if _over(plan, begun):
                    break
                cell_begun = time.monotonic()
                kept.append(plan.file, plan.stamp, cell, await _cell(plan, cell, systems))
                left.remove(cell)
                plan.tell(f"{cell.name}: {time.monotonic() - cell_begun:.0f} s; {len(left)} cells to go")
    return left


def _over(plan: Plan, begun: float) -> bool:
    return plan.seconds is not None and time.monotonic() - begun >= plan.seconds


async def _cell(plan: Plan, cell: Cell, systems: Sequence[System]) -> list[Row]:
    partners = [system for system in systems if takes_part(system.name, cell)]
    if cell.task is None:
        return await measure(cell, partners, _loads(cell), plan.rounds, plan.tell)
    following = MODELS[cell.model].following
    rows = await measure_task(cell, partners, partial(task_load, cell, following), plan.rounds, plan.tell)
    if cell.width > 1:
        return rows
    measured = [task_load(cell, following, number) for number in range(len(rows[0].seconds))]
    return await _bounded(plan.place, cell, rows, measured)


def _loads(cell: Cell) -> Callable[[int], dict[State, Load]]:
    """Return what gives the loads of the cell's rounds. Long prefixes are left out of the round that warms up."""
    model = MODELS.get(cell.model)
    if model is not None:
        short = replace(cell, prefix=0)
        return lambda number: loads(short if number == WARM_UP else cell, model.following, number)
    chats = Chats.of(TINY)
    return lambda number: {"cold": chats.load(cell, number)}


async def _bounded(place: Place, cell: Cell, rows: Sequence[Row], measured: Sequence[Load]) -> list[Row]:
    """Measure steps on the same prompts, and add to the rows what speculation could bring at best."""
    assert cell.task is not None, "only cells with a task have bounds"
    model, draft = MODELS[cell.model], place.drafter(cell.task, cell.model)
    setup = replace(place.setup((cell,)), width=1, context=2 * cell.context)
    files = (setup.model, draft.file(place.folder / "models"))
    target, drafter = (Ceiling(replace(setup, model=file), split=True) for file in files)
    try:
        times = step_times(target, drafter, [load.prompts[0].tokens for load in measured])
    finally:
        await target.close()
        await drafter.close()
    return with_bounds(rows, measured, (model.following, draft.following), times)
