"""What trainings of the frontdoor have come to, as their folders have it."""

import os
from pathlib import Path

from orchestrator.memrl.parl.curves import CURVES, CurvePoint, write_curves
from orchestrator.memrl.parl.trainings import FOLDER, POINTS, RESULT, TrainingResult, trainings, write_result

RESULT_OF = TrainingResult(updates=2, requests=60, gain=0.05, low=0.01, high=0.09, better=True, promoted=True)


def point(update: int) -> CurvePoint:
    numbers = dict.fromkeys(CurvePoint.__slots__, 0.5)
    return CurvePoint(**{**numbers, "update": update})  # type: ignore[arg-type]


def trained(home: Path, name: str, updates: int, at: float) -> Path:
    folder = home / FOLDER / name
    folder.mkdir(parents=True)
    write_curves(folder, [point(number) for number in range(1, updates + 1)])
    os.utime(folder / POINTS, (at, at))
    return folder


def test_trainings_are_listed_with_their_points_and_results(tmp_path: Path) -> None:
    write_result(trained(tmp_path, "training-0", 2, 1000.0), RESULT_OF)
    trained(tmp_path, "training-1", 1, 2000.0)
    first, second = trainings(tmp_path)
    assert (first.name, first.updated, len(first.points), first.result) == ("training-1", 2000.0, 1, None)
    assert (second.name, second.result) == ("training-0", RESULT_OF)
    assert [row["update"] for row in second.points] == [1, 2]
    assert second.points[0]["reward"] == 0.5
    assert (tmp_path / FOLDER / "training-0" / CURVES).exists()


def test_a_training_that_continued_has_no_result_any_more(tmp_path: Path) -> None:
    folder = trained(tmp_path, "training-0", 2, 1000.0)
    write_result(folder, RESULT_OF)
    write_curves(folder, [point(number) for number in range(1, 4)])
    (only,) = trainings(tmp_path)
    assert only.result is None


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    assert trainings(tmp_path) == []
    (trained(tmp_path, "training-0", 1, 1000.0) / POINTS).write_text("{")
    (trained(tmp_path, "training-1", 1, 1000.0) / RESULT).write_text("[")
    assert [(record.name, record.result) for record in trainings(tmp_path)] == [("training-1", None)]
