"""Keep what models of this machine did rightly, by which a new registry gives them their roles.

What was measured here counts instead of what the catalogue states of the same file.

`orchestrator bench model` measures that. The file is `measured.json` in the folder for models, and may be deleted.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, get_args

from registry.options import StepContext

FILE: Final = "measured.json"

ModelFile = tuple[str, int]
"""The path of a model's file without links, and its size in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredShares:
    """What a model did rightly, as shares from 0 to 1."""

    plans: float
    """Of natural requests, the share whose plan has a right structure."""
    answers: float
    """Of small tasks in words, the share that was done rightly."""
    code: float | None = None
    """Of functions, the share that passed its tests; None where no code could be run."""
    step_context: StepContext | None = None
    """What its steps should read, by which parts of requests it did rightly; None if that was not measured."""


def model_file(file: Path, size: int) -> ModelFile:
    """Return by what the results of a model are kept, whose file has `size` bytes."""
    return os.path.realpath(file), size


def read_measured(folder: Path) -> dict[ModelFile, MeasuredShares]:
    """Return what was measured of the models that the folder's file names. What is damaged counts as not measured."""
    try:
        rows = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return {(str(row["file"]), int(row["bytes"])): _measured(row) for row in rows}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def write_measured(folder: Path, file: ModelFile, measured: MeasuredShares) -> None:
    """Keep what was measured of a model, in place of what was measured of it before. Raises OSError."""
    known = {**read_measured(folder), file: measured}
    rows = [{"file": name, "bytes": size, **asdict(one)} for (name, size), one in known.items()]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as beside:
        fresh = Path(beside) / FILE
        fresh.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        os.replace(fresh, folder / FILE)


def _measured(row: Mapping[str, Any]) -> MeasuredShares:
    """Return the shares of a row. Raises ValueError for what is no share."""
    code = row["code"]
    shares = [float(row["plans"]), float(row["answers"]), *([] if code is None else [float(code)])]
    if not all(0.0 <= share <= 1.0 for share in shares):
        raise ValueError(f"the shares are {shares}; accepted: 0 to 1")
    context = row.get("step_context")
    if context is not None and context not in get_args(StepContext):
        raise ValueError(f"step_context is {context!r}; accepted: {', '.join(get_args(StepContext))}")
    return MeasuredShares(
        plans=shares[0], answers=shares[1], code=None if code is None else shares[2], step_context=context
    )
