"""What the engine's benchmark makes of what it measured: rows that are kept, goals, and the report."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import results
from benchmarks.engine import __main__ as command
from benchmarks.engine import report, rows
from benchmarks.engine.cells import EMBEDDED, HEADED, Cell, all_cells, coder_cells, user_cells
from benchmarks.engine.goals import EngineGoal, Goals, engine_goals, goals, own_share, undecided, user_goals
from benchmarks.engine.models import CODER, INSTEAD, SMOLLM2
from benchmarks.engine.names import EXAMPLE, OURS, POOLED, SERIAL, SERVER, SETTINGS, SPINNING, SPLIT, speculating
from benchmarks.engine.rows import EngineRow, MeasuredCell
from benchmarks.engine.suites import SUITES, Suite
from benchmarks.page import page
from orchestrator.bench.goals import state
from orchestrator.engine.processor import usable_cores
from tests.benchmarks.engine_rows import row

# Rows


def test_finished_cells_are_read_again_and_the_last_measurement_counts(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "rows.jsonl"
    first, second, third = cells = all_cells()[:3]
    assert rows.read(file, {"threads": 2}, cells) == {}
    rows.append(file, {"threads": 2}, "old", first, [row(OURS, 9.0)])
    rows.append(file, {"threads": 2}, "old", second, [row(OURS, 2.0), row(SERIAL, 3.0, bound=1.5)])
    rows.append(file, {"threads": 4}, "new", third, [row(OURS, 1.0)])
    rows.append(file, {"threads": 2}, "new", first, [row(OURS, 1.0)])
    assert rows.read(file, {"threads": 2}, cells) == {
        first.name: MeasuredCell("new", [row(OURS, 1.0)], {}),
        second.name: MeasuredCell("old", [row(OURS, 2.0), row(SERIAL, 3.0, bound=1.5)], {}),
    }
    assert rows.read(file, {"threads": 2}, [dataclasses.replace(first, own=7), second]).keys() == {second.name}


# Goals


def reached(name: str, measured: list[EngineRow], wanted: Goals = engine_goals) -> EngineGoal:
    """Return the one goal of that name."""
    (found,) = [goal for goal in goals(measured, wanted) if goal.name == name]
    return found


RATIOS = [
    ("ours ÷ ceiling with the same KV layout", POOLED, "cold", 0.95),
    ("ours ÷ llama-server, both warm", SERVER, "warm", 1.0),
    ("ours ÷ example server", EXAMPLE, "cold", 1.0),
    ("ours ÷ example server", EXAMPLE, "warm", 1.0),
    ("ours ÷ llama-server, both cold, 16 requests", SERVER, "cold", 1.5),
    ("ours ÷ llama-server, both cold, 16 requests, prefix 1024", SERVER, "cold", 6.0),
    ("ours ÷ one after the other, any width", SERIAL, "cold", 0.98),
]


@pytest.mark.parametrize(("name", "system", "state", "goal"), RATIOS)
def test_a_ratio_is_met_at_its_goal_and_not_below(name: str, system: str, state: str, goal: float) -> None:
    good = [row(OURS, 1.0, state=state), row(system, goal * 1.001, state=state)]
    bad = [row(OURS, 1.0, state=state, cell="150m/16x1025"), row(system, goal * 0.99, state=state, cell="150m/16x1025")]
    met, missed = reached(name, good), reached(name, good + bad)
    assert met.met
    assert met.value == pytest.approx(goal * 1.001, abs=1e-3)
    assert not missed.met
    assert (missed.where, missed.cells, missed.reached) == (f"150m/16x1025, {state}", 2, 1)


@pytest.mark.parametrize(("wanted", "count"), [(engine_goals, 17), (user_goals, 9)])
def test_a_goal_without_rows_is_open_and_not_met(wanted: Goals, count: int) -> None:
    found = goals([], wanted)
    assert len(found) == count
    assert all(goal.value is None and not goal.met for goal in found)


def test_too_few_rounds_meet_no_goal() -> None:
    found = reached(RATIOS[0][0], [row(OURS, 1.0, rounds=4), row(POOLED, 2.0, rounds=4)])
    assert found.value == pytest.approx(2.0)
    assert (found.met, found.cells, found.reached) == (False, 1, 0)


def test_embedded_models_have_no_goals() -> None:
    assert reached(RATIOS[0][0], [row(OURS, 1.0, model=EMBEDDED), row(POOLED, 0.1, model=EMBEDDED)]).value is None


@pytest.mark.parametrize(("method", "name"), [("mtp", "MTP head"), ("eagle", "EAGLE-3 head")])
def test_a_head_has_goals_of_its_own(method: str, name: str) -> None:
    measured = []
    for width, seconds in ((1, 0.7), (4, 0.97), (16, 1.1)):
        of_cell: dict[str, Any] = {
            "cell": f"{method}/{width}",
            "model": HEADED[method],
            "state": "warm",
            "width": width,
            "prefix": 0,
        }
        measured += [row(OURS, 1.0, **of_cell), row(speculating(OURS, method), seconds, **of_cell)]
    alone = reached(f"{name} ÷ no speculation, 1 request", measured)
    several = reached(f"{name} ÷ no speculation, more requests", measured)
    assert (alone.met, alone.cells, alone.value) == (True, 1, pytest.approx(1 / 0.7, abs=1e-3))
    assert (several.met, several.cells, several.reached) == (False, 2, 1)
    assert several.where == f"{method}/16, warm"
    assert reached("own time per step outside llama.cpp", measured).cells == 0


def test_the_ceiling_is_that_of_our_own_layout() -> None:
    ceilings = [row(POOLED, 1.0), row(SPLIT, 0.5)]
    for split, value in ((False, 1.0), (True, 0.5)):
        ours = dataclasses.replace(row(OURS, 1.0), split_cache=split)
        assert reached(RATIOS[0][0], [ours, *ceilings]).value == pytest.approx(value)


def test_two_at_once_count_for_one_after_the_other_only() -> None:
    measured = [row(OURS, 1.0, width=2), row(SERIAL, 1.0, width=2), row(EXAMPLE, 1.0, width=2)]
    assert reached("ours ÷ one after the other, any width", measured).cells == 1
    assert reached("ours ÷ example server", measured).cells == 0


def test_cold_without_a_prefix_counts_as_warm_too() -> None:
    assert reached(RATIOS[1][0], [row(OURS, 1.0, prefix=0), row(SERVER, 1.2, prefix=0)]).cells == 1
    assert reached(RATIOS[1][0], [row(OURS, 1.0), row(SERVER, 1.2)]).cells == 0


def test_speculation_has_its_bound_the_better_server_and_no_speculation_beside_it() -> None:
    task: dict[str, Any] = {"cell": "speculation/copy/1", "task": "copy", "state": "warm", "width": 1, "prefix": 0}
    measured = [
        row(OURS, 2.0, **task),
        row(speculating(OURS, "lookup"), 1.0, bound=2.0, **task),
        row(speculating(OURS, "draft"), 1.6, bound=1.6, **task),
        row(speculating(SERVER, "lookup", SETTINGS[0]), 1.5, **task),
        row(speculating(SERVER, "lookup", SETTINGS[1]), 0.9, **task),
        row(speculating(SERVER, "draft", SETTINGS[0]), 3.2, **task),
    ]
    bound, server, none = (
        reached(name, measured)
        for name in ("speculation ÷ its bound", "speculation ÷ llama-server's", "speculation ÷ no speculation")
    )
    assert (bound.value, bound.where) == (pytest.approx(0.7812), "speculation/copy/1, warm, ours, draft")
    assert (server.value, server.where) == (pytest.approx(0.9), "speculation/copy/1, warm, ours, lookup")
    assert (none.value, none.met, none.cells) == (pytest.approx(1.25), True, 2)
    assert not reached(RATIOS[5][0], measured).cells


def spread(middle: float, reach: float) -> tuple[float, ...]:
    """Return five times around a middle, so that the 95 % interval of their ratios to 1 reaches about so far."""
    part = reach / 0.98  # 2.776 standard deviations of (-1, -0.5, 0, 0.5, 1), over the root of 5
    return tuple(middle * math.exp(part * step) for step in (-1.0, -0.5, 0.0, 0.5, 1.0))


@given(st.floats(0.8, 1.2), st.floats(0.001, 0.2))
def test_a_ratio_is_judged_by_the_end_of_its_interval_that_is_nearest_to_the_goal(middle: float, reach: float) -> None:
    steady = dataclasses.replace(row(OURS, 1.0), seconds=(1.0,) * 5)
    found = reached(
        "ours ÷ example server", [steady, dataclasses.replace(steady, system=EXAMPLE, seconds=spread(middle, reach))]
    )
    assert found.interval is not None
    assert found.interval[1] == pytest.approx(middle * math.exp(reach), rel=0.01)
    assert found.value == pytest.approx(middle, abs=1e-3)
    assert found.met == (found.interval[1] >= 1.0)
    assert found.reached == found.met


@given(st.floats(2.4, 3.6), st.floats(0.001, 0.2))
def test_what_may_be_so_much_at_most_is_judged_by_the_lower_end(middle: float, reach: float) -> None:
    idle = dataclasses.replace(row(OURS, 1.0, cell="busy/steps", state="idle"), seconds=(1.0,) * 5)
    busy = dataclasses.replace(idle, state="one", seconds=spread(middle, reach))
    found = reached("three steps, one core busy ÷ idle", [idle, busy], user_goals)
    assert found.interval is not None
    assert found.met == (found.interval[0] <= 3.0)


def test_the_cell_that_is_reported_is_one_that_misses_its_goal_if_any_does() -> None:
    steady = dataclasses.replace(row(OURS, 1.0), seconds=(1.0,) * 5)
    sure, noisy = "150m/16x1024", "150m/4x1024"
    measured = [
        steady,
        dataclasses.replace(steady, system=EXAMPLE, seconds=spread(0.97, 0.01)),
        dataclasses.replace(steady, cell=noisy),
        dataclasses.replace(steady, cell=noisy, system=EXAMPLE, seconds=spread(0.95, 0.2)),
    ]
    found = reached("ours ÷ example server", measured)
    assert (found.where, found.met, found.reached, found.cells) == (f"{sure}, cold", False, 1, 2)
    found = reached("ours ÷ example server", measured[2:])
    assert (found.where, found.met, found.value) == (f"{noisy}, cold", True, pytest.approx(0.95))


USERS = [
    ("ours ÷ llama-server over HTTP, own texts", SERVER, "http/own/4", "cold", 1.0),
    ("ours ÷ llama-server over HTTP, own texts", SERVER, "http/own/16", "warm", 1.0),
    ("ours ÷ llama-server over HTTP, 16 sharing a document, new", SERVER, "http/shared/16", "cold", 5.0),
    ("ours ÷ llama-server over HTTP, 16 sharing a document, held", SERVER, "http/shared/16", "warm", 1.0),
    ("ours ÷ llama-server over HTTP, one core busy", SERVER, "busy/one/1", "cold", 1.0),
    ("ours ÷ llama-server over HTTP, each core busy", SERVER, "busy/each/16", "cold", 1.0),
    ("ours ÷ ours with threads that spin, idle machine", SPINNING, "http/own/1", "cold", 0.98),
]


@pytest.mark.parametrize(("name", "system", "cell", "state", "goal"), USERS)
def test_goals_of_the_users_path_are_each_about_its_own_cells(
    name: str, system: str, cell: str, state: str, goal: float
) -> None:
    ours = row(OURS, 1.0, cell=cell, state=state)
    met = reached(name, [ours, row(system, goal * 1.001, cell=cell, state=state)], user_goals)
    missed = [ours, row(system, goal * 0.99, cell=cell, state=state)]
    assert (met.met, met.cells, met.where) == (True, 1, f"{cell}, {state}")
    assert not reached(name, missed, user_goals).met
    assert [each.name for each in goals(missed, user_goals) if not each.met and each.cells] == [name]


def test_steps_beside_busy_loops_are_compared_with_the_same_rounds_on_an_idle_machine() -> None:
    steps = {state: row(OURS, seconds, cell="busy/steps", state=state) for state, seconds in SECONDS.items()}
    one, each = (
        reached(f"three steps, {busy} core busy ÷ idle", [*steps.values()], user_goals) for busy in ("one", "each")
    )
    assert (one.value, one.met, one.where) == (pytest.approx(3.5), False, "busy/steps, one, ours")
    assert (each.value, each.met) == (pytest.approx(2.5), True)


def test_no_attempt_may_be_lost_in_any_cell() -> None:
    fine = [row(OURS, 1.0, cell="busy/steps", state="each"), row(OURS, 1.0, cell="http/own/4")]
    assert reached("attempts that were lost", fine, user_goals).met
    found = reached("attempts that were lost", [*fine, row(OURS, 1.0, cell="busy/one/4", lost=2)], user_goals)
    assert (found.value, found.met, found.where) == (2, False, "busy/one/4, cold")


SECONDS = {"idle": 2.0, "one": 7.0, "each": 5.0}


@pytest.mark.parametrize("factor", [0.96, 1.0, 1.04])
def test_a_ratio_that_may_lie_on_either_side_of_its_goal_is_undecided(factor: float) -> None:
    noisy = tuple(factor * seconds for seconds in (0.8, 1.0, 1.2, 0.9, 1.1))
    measured = [row(OURS, 1.0), dataclasses.replace(row(SERIAL, 1.0), seconds=noisy), row(EXAMPLE, 2.0)]
    assert undecided(measured, engine_goals) == {"150m/16x1024": {OURS, SERIAL}}
    steady = [dataclasses.replace(each, seconds=each.seconds[:1] * 5) for each in measured]
    assert undecided(steady, engine_goals) == {}
    long = [dataclasses.replace(each, seconds=(each.seconds * 7)[:31]) for each in measured]
    assert undecided(long, engine_goals) == {}


def test_systems_with_different_numbers_of_rounds_get_no_further_ones_together() -> None:
    few, many = (1.0, 1.0, 1.1, 0.9, 1.0), (1.0, 1.05, 0.95, 1.0, 1.1, 0.9)
    ours = dataclasses.replace(row(OURS, 1.0), seconds=many)
    ceilings = [dataclasses.replace(row(name, 1.0), seconds=few) for name in (POOLED, SPLIT)]
    assert undecided([ours, *ceilings], engine_goals) == {ours.cell: set()}
    longer = [dataclasses.replace(ceiling, seconds=many[::-1]) for ceiling in ceilings]
    assert undecided([ours, *longer], engine_goals) == {ours.cell: {OURS, POOLED, SPLIT}}
    serial = dataclasses.replace(row(SERIAL, 1.0), seconds=many[::-1])
    assert undecided([ours, serial, *ceilings], engine_goals) == {ours.cell: {OURS, SERIAL}}


def test_a_part_of_a_bound_has_an_interval_and_may_be_undecided() -> None:
    task: dict[str, Any] = {"cell": "speculation/copy/1", "task": "copy", "state": "warm", "width": 1, "prefix": 0}
    noisy = dataclasses.replace(row(OURS, 1.0, **task), seconds=(1.6, 2.0, 2.4, 1.8, 2.2))
    drafted = dataclasses.replace(row(speculating(OURS, "draft"), 1.0, bound=2.0, **task), seconds=(1.0,) * 5)
    found, faster = (reached(f"speculation ÷ {what}", [noisy, drafted]) for what in ("its bound", "no speculation"))
    assert found.value == pytest.approx(1.0)
    assert faster.interval
    assert found.interval == pytest.approx(tuple(end / 2.0 for end in faster.interval))
    assert undecided([noisy, drafted], engine_goals) == {"speculation/copy/1": {OURS, speculating(OURS, "draft")}}
    surely = dataclasses.replace(drafted, bound=1.0)
    assert undecided([noisy, surely], engine_goals) == {}


def test_a_ratio_is_of_the_rounds_that_both_systems_did() -> None:
    longer = dataclasses.replace(row(OURS, 1.0), seconds=(*row(OURS, 1.0).seconds, 50.0, 50.0))
    assert reached(RATIOS[6][0], [longer, row(SERIAL, 1.5)]).value == pytest.approx(1.5)


@given(st.floats(0.001, 1), st.floats(0, 1))
def test_our_own_share_is_of_all_our_time(llama: float, own: float) -> None:
    measured = row(OURS, 1.0, llama_seconds=llama, own_seconds=own)
    share = own_share(measured)
    assert share == pytest.approx(own / (own + llama))
    assert reached("own time per step outside llama.cpp", [measured]).met == (own / (own + llama) <= 0.02)
    assert own_share(row(SERIAL, 1.0)) is None


# Report


def test_the_document_is_json_with_a_row_and_a_goal_each() -> None:
    measured = [row(OURS, 1.0, llama_seconds=1.0, own_seconds=0.01), row(SERVER, 6.5)]
    cells = [cell for cell in all_cells() if cell.prefix == 1024 and cell.width == 16]
    finished = {"150m/16x1024": MeasuredCell("old", measured)}
    found = report.document(
        finished, goals(measured, engine_goals), report.stamp(2), "new", cells, {"command": "make it"}
    )
    again = json.loads(json.dumps(found))
    assert {"machine", "versions", "rows", "goals"} <= set(again)
    assert (again["rows"][1]["median"], again["rows"][1]["tokens_per_second"]) == (6.63, 77.2)
    assert all({"name", "value", "goal", "met"} <= set(goal) for goal in again["goals"])
    assert (again["engine"], again["engines"]) == ("new", {"150m/16x1024": "old"})
    assert again["cells"] == {"measured": {"150m/16x1024": dataclasses.asdict(cells[0])}, "left": ["500m/16x1024"]}


def test_the_page_names_the_machines_of_the_cells() -> None:
    machines = [{"processor": name, "cores": 2} for name in ("One", "Two", "One")]
    cells = all_cells()[: len(machines)]
    finished = {
        cell.name: MeasuredCell("new", [row(OURS, 1.0, cell=cell.name)], machine)
        for cell, machine in zip(cells, machines, strict=True)
    }
    found = report.document(finished, [], report.stamp(2), "new", cells, report.about_engine())
    told = page({"engine": results.with_states(found)})
    assert "`make bench-engine`, One with 2 cores, and Two with 2 cores; all figures are in" in told


def test_the_page_shows_each_comparison_with_llama_server_and_what_is_missing() -> None:
    cells = coder_cells("coder")
    compared = [row(OURS, 1.0, cell=cells[0].name, rounds=6), row(SERVER, 0.9, cell=cells[0].name)]
    finished = {cells[0].name: MeasuredCell("new", compared)}
    document = report.document(finished, [], report.stamp(2), "new", cells, report.about_user_path())
    lines = page({"user_path": results.with_states(document)}).splitlines()
    assert "| http/own/coder/1, cold | 5 | 0.90 | 0.90 to 0.90 |" in lines
    assert "Not measured yet: http/own/coder/4, http/own/coder/16." in lines


def test_published_cells_count_as_finished_while_nothing_has_changed(tmp_path: Path) -> None:
    measured, file = [row(OURS, 1.0, bound=1.5), row(SERVER, 6.5)], tmp_path / "engine.json"
    cells, stamp = all_cells(), {**report.stamp(2), "systems": [OURS], "rounds": None}
    assert rows.published(file, stamp, cells) == {}
    finished = {"150m/16x1024": MeasuredCell("old", measured)}
    results.write(
        file, report.document(finished, goals(measured, engine_goals), stamp, "new", cells, report.about_engine())
    )
    assert rows.published(file, stamp, cells) == finished
    assert rows.published(file, {**stamp, "threads": 1}, cells) == {}
    other = {**stamp, "machine": {"processor": "another", "cores": 2}, "rounds": 5}
    assert rows.published(file, other, cells) == finished
    assert rows.published(file, stamp, [dataclasses.replace(cell, own=7) for cell in cells]) == {}


def published_suite(folder: Path, *cells: Cell) -> Suite:
    """Return the suite of the user's path, of which these cells are published."""
    suite = dataclasses.replace(SUITES["user-path"], published=folder / "user_path.json")
    finished = {cell.name: MeasuredCell("old", [row(OURS, 1.0, cell=cell.name)]) for cell in cells}
    document = report.document(finished, [], stamp_of(suite), "old", cells, suite.about)
    results.write(suite.published, document)
    return suite


def stamp_of(suite: Suite) -> rows.Stamp:
    return {**report.stamp(usable_cores()), "systems": list(suite.systems), "rounds": None}


def published_after(suite: Suite, folder: Path, cell: Cell, *words: str) -> dict[str, float]:
    """Publish a cell that was measured alone, and return the first seconds of all published cells."""
    options = command._parser().parse_args(["run", "--suite", "user-path", "--folder", str(folder), *words])
    options.systems = options.systems or list(suite.systems)
    command._publish(suite, options, {cell.name: MeasuredCell("new", [row(OURS, 2.0, cell=cell.name)])})
    published = json.loads(suite.published.read_text(encoding="utf-8"))["rows"]
    return {each["cell"]: each["seconds"][0] for each in published}


@pytest.mark.slow
def test_a_cell_that_is_measured_alone_is_published_next_to_those_of_models_that_are_not_here(tmp_path: Path) -> None:
    first, second, *_ = user_cells(SMOLLM2.name)
    coder = coder_cells(CODER)[0]
    SMOLLM2.file(tmp_path / "models").parent.mkdir(parents=True, exist_ok=True)
    SMOLLM2.file(tmp_path / "models").touch()
    suite = published_suite(tmp_path, first, second, coder)
    assert published_after(suite, tmp_path, second) == {first.name: 1.0, second.name: 2.0, coder.name: 1.0}


@pytest.mark.slow
def test_nothing_is_published_in_place_of_cells_that_would_be_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, *_ = user_cells(SMOLLM2.name)
    suite = published_suite(tmp_path, first, second)
    kept = {first.name: 1.0, second.name: 1.0}
    assert published_after(suite, tmp_path, user_cells(INSTEAD.name)[0]) == kept, "the model is another one"
    assert f"would be lost: {first.name}" in capsys.readouterr().out
    SMOLLM2.file(tmp_path / "models").parent.mkdir(parents=True, exist_ok=True)
    SMOLLM2.file(tmp_path / "models").touch()
    assert published_after(suite, tmp_path, first, "--systems", OURS) == kept, (
        "the others were measured with all systems"
    )
    assert f"would be lost: {second.name}" in capsys.readouterr().out


def test_cells_that_do_not_exist_are_refused() -> None:
    with pytest.raises(SystemExit, match=r"150m/none: there is no such cell; accepted: .* 150m/1x0"):
        command.main(["list", "--cells", "150m/none"])


@pytest.mark.parametrize("suite", [suite for suite in SUITES.values() if suite.published.exists()])
def test_what_is_published_is_read_again_and_has_the_goals_that_its_rows_show(suite: Suite) -> None:
    """Rows that were written before a field was there are read too."""
    published = json.loads(suite.published.read_text(encoding="utf-8"))
    stamp = {key: published[key] for key in ("machine", "versions", "threads", "systems", "rounds")}
    models = {cell["model"] for cell in published["cells"]["measured"].values()}
    cells: list[Cell] = [*all_cells(), *coder_cells(CODER)]
    cells += [cell for model in models - {CODER} for cell in user_cells(model)]
    finished = rows.published(suite.published, stamp, cells)
    assert list(finished) == list(published["cells"]["measured"])
    found = goals([row for each in finished.values() for row in each.rows], suite.goals)
    states = (state(goal.value, goal.goal, met=goal.met) for goal in found)
    assert [
        (goal.name, goal.value, reached, goal.reached, goal.where) for goal, reached in zip(found, states, strict=True)
    ] == [
        (goal["name"], goal["value"], goal["state"], goal["reached"], goal.get("where")) for goal in published["goals"]
    ]


def test_the_table_shows_every_row_and_every_goal() -> None:
    measured = [row(OURS, 1.0), row(SERVER, 6.5)]
    lines = report.printed(measured, goals(measured, engine_goals)).splitlines()
    assert len(lines) == 1 + 2 + 1 + 1 + 17
    assert "6.500 (6.500-6.500)" in lines[2]
    assert "4 of them" not in lines[2]
    assert "4 of them" in report.printed([row(SERVER, 6.5, requests=4)], [])
    assert sum("  NO" in line for line in lines) == 15


def test_an_engine_with_other_comments_is_the_same_and_one_with_another_number_is_not(tmp_path: Path) -> None:
    file = tmp_path / "engine.py"

    def hashed(code: str) -> str:
        file.write_text(code)
        return report.source_hash(tmp_path)

    before = hashed('"""An engine."""\nRATE = 0.1\n"""Corrected at once."""\n\n\ndef f() -> float:\n    return RATE\n')
    assert hashed("RATE = 0.1  # at once\n\n\ndef f() -> float:\n    '''Tell it.'''\n    return RATE\n") == before
    assert hashed("RATE = 0.2\n\n\ndef f() -> float:\n    return RATE\n") != before
    assert hashed('RATE = 0.1\n\n\ndef f() -> str:\n    return "RATE"\n') != before
    alone = report.source_hash(tmp_path)
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / "app.py").write_text("RATE = 1\n")
    assert report.source_hash(tmp_path) != alone
    assert report.source_hash(tmp_path, without=("api",)) == alone
