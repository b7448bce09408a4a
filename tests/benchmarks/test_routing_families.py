"""The grid of task families is what the engine makes of them, and routers are judged by it as they are used."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.routing import families
from benchmarks.routing.grid import KEPT, OPTIONS, Grid, make_grid, read_grid
from benchmarks.routing.outcomes import DataError
from benchmarks.routing.rollouts import (
    LARGE,
    TaskSplit,
    Variant,
    cheapest_per_family,
    cost_at,
    fixed_choices,
    learn_on,
    success_at,
)
from benchmarks.routing.rows import RowLog

points = st.lists(st.tuples(st.floats(0, 1), st.floats(0.1, 2)), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def grid() -> Grid:
    return read_grid()


@pytest.mark.slow
def test_the_published_grid_is_what_the_engine_makes(grid: Grid, tmp_path: Path) -> None:
    make_grid(RowLog(tmp_path / "rows.jsonl"), tmp_path / "grid.csv", count=12)
    made = read_grid(tmp_path / "grid.csv")
    assert made.situations == grid.situations[:12]
    assert np.abs(made.right - grid.right[:12]).mean() <= 0.05  # other processors may round differently
    assert (made.seconds > 0).all()


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "task,model,persona,right,tokens,seconds\n"])
def test_a_file_that_is_no_grid_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "grid.csv"
    file.write_text(text)
    with pytest.raises(DataError, match=r"grid\.csv"):
        read_grid(file)


def test_a_grid_of_other_tasks_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "grid.csv"
    lines = KEPT.read_text().splitlines()
    file.write_text("\n".join([lines[0], *lines[1 + len(OPTIONS) : 1 + 3 * len(OPTIONS)]]))
    with pytest.raises(DataError, match="other tasks"):
        read_grid(file)


def test_a_split_keeps_the_shares_of_families_and_no_task_is_in_both(grid: Grid) -> None:
    split = TaskSplit.of(grid, np.random.default_rng(0))
    assert sorted([*split.learned, *split.held_out]) == list(range(len(grid.families)))
    names = np.array(grid.families)
    counts = {family: int((names[split.held_out] == family).sum()) for family in set(grid.families)}
    assert max(counts.values()) - min(counts.values()) <= 1
    assert set(names[split.only(grid, ["code"]).learned]) == {"code"}


def test_nobody_is_better_than_the_oracle_and_hindsight_beats_one_choice_for_all(grid: Grid) -> None:
    tasks = TaskSplit.of(grid, np.random.default_rng(0)).held_out
    scores = {
        name: taken.scores(grid, 0.1)
        for name, taken in fixed_choices(grid, tasks, 0.1, np.random.default_rng(0)).items()
    }
    oracle, hindsight = scores["oracle per task"], scores["best per family, in hindsight"]
    assert oracle["regret"] == pytest.approx(0)
    assert hindsight["regret_to_family"] == pytest.approx(0)
    for one in scores.values():
        assert oracle["net"] >= one["net"]
    for name in ("always small", "always large", "rules"):
        assert hindsight["net"] >= scores[name]["net"] - 1e-9
    assert scores["always large"]["cost"] == pytest.approx(1)
    assert cheapest_per_family(grid, tasks, 1.0) <= 1 + 1e-9


@pytest.mark.slow
def test_a_router_learns_from_its_own_choices(grid: Grid) -> None:
    split = TaskSplit.of(grid, np.random.default_rng(1))
    found = learn_on(grid, Variant(), 0.1, split, (0, 300), seed=1)
    assert set(found) == {"after 0", "after 0 alone", "after 300", "after 300 alone"}
    assert found["after 0"]["followed"] == 0
    assert found["after 300 alone"]["regret"] < found["after 0 alone"]["regret"]
    once, again = (learn_on(grid, Variant(), 0.1, split, (0, 30), seed=1) for _ in range(2))
    assert once == again


def test_without_personas_none_is_chosen_and_chains_are_learned_from_by_their_end(grid: Grid) -> None:
    split = TaskSplit.of(grid, np.random.default_rng(2))
    assert all(not OPTIONS[place][1] for place in Variant(personas=False).options)
    for variant in (Variant(personas=False), Variant(plain=True), Variant(trace=0.5)):
        found = learn_on(grid, variant, 0.1, split, (30,), seed=2)
        assert 0 < found["after 30"]["success"] <= 1


@given(points, st.floats(0, 1))
def test_a_success_costs_no_more_than_a_point_that_has_it(some: list[tuple[float, float]], wanted: float) -> None:
    cost = cost_at(some, wanted)
    reaching = [spent for reached, spent in some if reached >= wanted]
    assert cost <= min(reaching, default=float("inf"))
    assert (cost == float("inf")) == (not reaching)
    if reaching:
        assert success_at(some, cost) >= wanted - 1e-6


@pytest.mark.slow
def test_scores_are_kept_and_goals_told(grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "AFTER", (0, 20))
    monkeypatch.setattr(families, "PRICES", (families.PRICE,))
    rows = RowLog(tmp_path / "rows.jsonl", lambda line: None)
    part = families.families(rows, seeds=2)
    assert {row["router"] for row in part.rows} >= {"always large", "rules", "after 20", "after 20 alone"}
    assert len(part.goals) == 3
    assert all(len(goal["interval"]) == 2 for goal in part.goals)
    again = families.families(RowLog(tmp_path / "rows.jsonl", lambda line: None), seeds=2)
    assert again.rows == part.rows
    assert grid.right[:, LARGE].mean() > 0.8
