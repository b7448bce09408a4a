"""Tell the two suites of cells apart: the engine by itself, and the user's own path to it.

They have goals and results of their own. The user's path is measured through all of our code, so that what was measured
of it holds for as long as none of that changes, while the engine by itself only depends on the engine. And a suite can
be measured on a machine without dropping what the other one came to on another machine.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.engine import report
from benchmarks.engine.cells import Cell, all_cells, trial_cells, trial_user_cells, user_cells
from benchmarks.engine.goals import LEAST_ROUNDS, Goals, engine_goals, user_goals
from benchmarks.engine.models import INSTEAD, SMOLLM2
from benchmarks.engine.names import SYSTEMS, USER_PATH_SYSTEMS
from benchmarks.engine.paired import Rounds
from benchmarks.engine.run import ROUNDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Cells and what belongs to them.

    `cells` takes the folder of the models. `source` is the folder of the code that is measured, `rows` the beginning of
    the names of files that keep finished cells, and `published` the file of the results.
    """

    cells: Callable[[Path], tuple[Cell, ...]]
    trial: tuple[Cell, ...]
    systems: tuple[str, ...]
    goals: Goals
    source: Path
    rounds: Rounds
    rows: str
    published: Path
    about: Mapping[str, Any]


def _user_cells(models: Path) -> tuple[Cell, ...]:
    """Return the cells with the model that is there: the one of a package, or else one that is generated."""
    return user_cells(SMOLLM2.name if SMOLLM2.file(models).exists() else INSTEAD.name)


SUITES = {
    "engine": Suite(
        cells=lambda _: all_cells(),
        trial=trial_cells(),
        systems=SYSTEMS,
        goals=engine_goals,
        source=report.ENGINE,
        rounds=ROUNDS,
        rows="",
        published=results.FOLDER / "engine.json",
        about=report.about_engine(),
    ),
    "user-path": Suite(
        cells=_user_cells,
        trial=trial_user_cells(),
        systems=USER_PATH_SYSTEMS,
        goals=user_goals,
        source=report.PRODUCT,
        rounds=Rounds(LEAST_ROUNDS, 15, seconds=120),
        rows="user-path-",
        published=results.FOLDER / "user_path.json",
        about=report.about_user_path(),
    ),
}
