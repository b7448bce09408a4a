"""Define the two suites of cells: the engine by itself, and the user's own path to it over HTTP.

Each has its own goals and results. The user's path runs through all of our code, so its results hold as long as none of
that changes, while those of the engine by itself only depend on the engine. And a suite can be measured on one machine
while the results of the other come from another machine.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.engine import report
from benchmarks.engine.cells import Cell, all_cells, coder_cells, trial_cells, trial_user_cells, user_cells
from benchmarks.engine.goals import LEAST_ROUNDS, Goals, engine_goals, user_goals
from benchmarks.engine.models import CODER, CODER_FILE, INSTEAD, SMOLLM2
from benchmarks.engine.names import SYSTEMS, USER_PATH_SYSTEMS
from benchmarks.engine.paired import Rounds
from benchmarks.engine.run import ROUNDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A set of cells with everything that belongs to it."""

    cells: Callable[[Path], tuple[Cell, ...]]  # returns the cells; takes the folder of the models
    # Cells whose own models are all there. If a model is missing, its published rows stay.
    known: tuple[Cell, ...]
    trial: tuple[Cell, ...]  # small cells for trying out the suite
    systems: tuple[str, ...]
    goals: Goals
    source: Path  # the folder of the code that is measured
    rounds: Rounds
    rows: str  # the beginning of the names of the files that keep finished cells
    published: Path  # the file of the results
    about: Mapping[str, Any]  # entries of the results about how they were measured


def _user_cells(models: Path) -> tuple[Cell, ...]:
    """Return the cells with the packaged model if it is in the folder, or else with a generated one.

    Cells of the second model are among them if its file is in the folder.
    """
    cells = user_cells(SMOLLM2.name if SMOLLM2.file(models).exists() else INSTEAD.name)
    return (*cells, *coder_cells(CODER)) if (models / CODER_FILE).exists() else cells


SUITES = {
    "engine": Suite(
        cells=lambda _: all_cells(),
        known=all_cells(),
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
        known=(*user_cells(SMOLLM2.name), *coder_cells(CODER)),
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
