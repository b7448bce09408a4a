"""Keep what a training of the frontdoor has come to next to its weights, and list the trainings of a state folder.

Nothing here needs PyTorch, so a daemon can read it while a training runs in another process.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from orchestrator.files import replace_file

FOLDER: Final = "frontdoor"  # of trainings and adapters, in a state folder
POINTS: Final = "curves.json"
RESULT: Final = "result.json"
_RESULT_FIELDS: Final = ("updates", "requests", "gain", "low", "high", "better", "promoted", "spoiled")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult:
    """How the adapter of a complete training compares with what the frontdoor had before."""

    updates: int  # that the adapter had
    requests: int  # held-out ones on which both were compared
    gain: float  # of the mean performance, with a 95 % interval
    low: float
    high: float
    better: bool  # with certainty, and without spoiling other requests
    promoted: bool  # the adapter was written to the registry
    spoiled: bool = False  # it has unlearned requests unlike those of the training


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecord:
    """A training, as far as it is."""

    name: str  # of its folder
    updated: float  # when it made its last update, in seconds since the epoch
    points: Sequence[Mapping[str, float]]  # of each update: the fields of `curves.CurvePoint`
    result: TrainingResult | None  # of these updates; None until it is complete


def write_points(folder: Path, points: Sequence[Mapping[str, float]]) -> None:
    """Keep the figures of all updates. Raises OSError."""
    replace_file(folder / POINTS, json.dumps(points))


def write_result(folder: Path, result: TrainingResult) -> None:
    """Keep the result of a complete training. Raises OSError."""
    replace_file(folder / RESULT, json.dumps({name: getattr(result, name) for name in _RESULT_FIELDS}))


def trainings(home: Path) -> list[TrainingRecord]:
    """Return the trainings of a state folder that have made an update, the latest first.

    What cannot be read is left out: a training of an early version has no such files.
    """
    records = []
    for file in (home / FOLDER).glob(f"*/{POINTS}"):
        points, result = _read(file), _read(file.with_name(RESULT))
        if points:
            complete = isinstance(result, dict) and result["updates"] == len(points)  # else it went on since
            records.append(
                TrainingRecord(
                    name=file.parent.name,
                    updated=file.stat().st_mtime,
                    points=points,
                    result=TrainingResult(**result) if complete else None,
                )
            )
    return sorted(records, key=lambda record: -record.updated)


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
