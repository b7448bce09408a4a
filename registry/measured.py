"""Store measured results of models, by which a new registry assigns roles.

`orchestrator bench model` writes them to `measured.json` in the folder for models. They override the catalogue's
figures for the same file, and may be deleted.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

from annotated_types import Ge, Le
from pydantic import TypeAdapter

from orchestrator.files import replace_file
from orchestrator.registry.options import StepContext

FILE: Final = "measured.json"

Share = Annotated[float, Ge(0), Le(1)]
ModelFile = tuple[str, int]  # path without links, and size in bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredShares:
    """Shares of correct results, from 0 to 1."""

    plans: Share  # natural requests whose plan has a correct structure
    answers: Share  # small tasks in words
    code: Share | None = None  # functions that pass their tests; None if no code could be run
    step_context: StepContext | None = None  # best for its steps; None if not measured


def model_file(file: Path, size: int) -> ModelFile:
    """Return the key of a model's results."""
    return os.path.realpath(file), size


def read_measured(folder: Path) -> dict[ModelFile, MeasuredShares]:
    """Return the results in the folder's file. Damaged ones count as not measured."""
    shares = TypeAdapter(MeasuredShares)
    try:
        rows = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return {(str(row["file"]), int(row["bytes"])): shares.validate_python(row) for row in rows}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def write_measured(folder: Path, file: ModelFile, measured: MeasuredShares) -> None:
    """Replace the results of a model. Raises OSError."""
    shares_by_file = {**read_measured(folder), file: measured}
    rows = [{"file": name, "bytes": size, **asdict(shares)} for (name, size), shares in shares_by_file.items()]
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / FILE, json.dumps(rows, indent=1) + "\n")
