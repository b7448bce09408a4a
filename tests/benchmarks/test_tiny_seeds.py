"""What training from the seeds came to is told beside what ships."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.results import with_states
from benchmarks.tiny import card, seeds
from benchmarks.tiny.sizes import RESULTS_FILE, SEEDS_FILE, SIZES

SHIPPED = card.read(RESULTS_FILE)


def test_weights_that_do_as_well_are_not_apart() -> None:
    found = seeds.goals(SHIPPED["rows"], SHIPPED["rows"], list(SIZES))
    assert [goal.value for goal in found if "apart" in goal.name] == [0] * 2 * len(SIZES)
    assert all(goal.met for goal in found)


def test_weights_that_forgot_a_family_are_reported() -> None:
    forgot = {"size": "small", "family": "shell", "split": "entity", "grammar": False}
    rows = [row | {"share": 0.0} if forgot.items() <= row.items() else row for row in SHIPPED["rows"]]
    found = {goal.name: goal for goal in seeds.goals(SHIPPED["rows"], rows, ["small", "medium"])}
    assert not found["small, held-out names, apart from the shipped"].met
    assert found["small, held-out wordings, apart from the shipped"].met
    assert found["medium, held-out names, apart from the shipped"].met


def test_large_weights_that_miss_a_goal_are_reported() -> None:
    missed = {"size": "large", "family": "plan", "split": "wording", "grammar": False}
    rows = [row | {"share": 0.94} if missed.items() <= row.items() else row for row in SHIPPED["rows"]]
    found = seeds.goals(SHIPPED["rows"], rows, ["large"])
    assert [goal.name for goal in found if not goal.met] == ["large, plan, held-out wordings"]


def test_one_size_trained_now_leaves_the_others_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = SIZES["small"]
    rows = card.size_rows(SHIPPED["rows"], "small")
    monkeypatch.setattr("benchmarks.tiny.sizes.BUILD", tmp_path)
    monkeypatch.setattr("benchmarks.tiny.corpus.data_hash", lambda: "the hash of all data, which takes long to make")
    small.measured.write_text(json.dumps(rows), encoding="utf-8")
    small.cost.write_text(json.dumps({"seconds": 60}), encoding="utf-8")
    large = {"training": {"large": {"seconds": 5}}, "rows": card.size_rows(SHIPPED["rows"], "large")}
    found = seeds.collect(SHIPPED, large, [small])
    assert list(found["training"]) == ["large", "small"]
    assert found["training"]["large"] == {"seconds": 5}
    assert found["rows"] == [*large["rows"], *rows]


def test_published_goals_are_those_of_the_rows() -> None:
    published: dict[str, Any] = card.read(SEEDS_FILE)
    sizes = list(published["training"])
    assert published["goals"] == with_states(
        [asdict(goal) for goal in seeds.goals(SHIPPED["rows"], published["rows"], sizes)]
    )
    assert published["data_hash"] == SHIPPED["data_hash"]
