"""The drawing of a DAG tells exactly its edges."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.step_table import CELL, MAX_LANES, draw_dag
from orchestrator.cli.terminal import ASCII, UNICODE, Glyphs


def _rows(before: dict[str, list[str]], signs: Glyphs = UNICODE) -> list[str]:
    drawn = draw_dag(list(before), before, dict.fromkeys(before, "#"), signs)
    assert drawn is not None
    return [picture.row.rstrip() for picture in drawn.values()]


def test_a_fan_in_joins_all_lanes() -> None:
    rows = _rows({"S1": [], "S2": [], "S3": [], "S4": ["S1", "S2", "S3"]})
    assert rows == ["#", "│ #", "│ │ #", "#─┴─╯"]


def test_a_diamond_splits_and_joins() -> None:
    assert _rows({"S1": [], "S2": ["S1"], "S3": ["S1"], "S4": ["S2", "S3"]}) == ["#", "├─#", "# │", "#─╯"]


def test_a_chain_goes_straight_down_and_unrelated_steps_do_not() -> None:
    assert _rows({"S1": [], "S2": ["S1"], "S3": ["S2"]}) == ["#", "#", "#"]
    assert _rows({"S1": [], "S2": [], "S3": []}) == ["#", "  #", "#"]


def test_lanes_stay_open_while_the_plan_grows() -> None:
    before: dict[str, list[str]] = {"S1": [], "S2": [], "S3": ["S1"]}
    drawn = draw_dag(list(before), before, dict.fromkeys(before, "#"), UNICODE, growing=True)
    assert drawn is not None
    assert [picture.row.rstrip() for picture in drawn.values()] == ["#", "│ #", "# │"]


def test_a_lane_that_is_not_read_is_passed_by() -> None:
    rows = _rows({"S1": [], "S2": [], "S3": ["S1"], "S4": ["S1", "S2", "S3"]})
    assert rows == ["#", "│ #", "├─│─#", "#─┴─╯"]


def test_plain_characters_do_for_a_terminal_without_unicode() -> None:
    rows = _rows({"S1": [], "S2": [], "S3": ["S1", "S2"]}, ASCII)
    assert rows == ["#", "| #", "#-'"]


def test_what_follows_a_step_keeps_the_lanes_open() -> None:
    drawn = draw_dag(
        ["S1", "S2", "S3"], {"S1": [], "S2": [], "S3": ["S1", "S2"]}, dict.fromkeys(("S1", "S2", "S3"), "#"), UNICODE
    )
    assert drawn is not None
    assert [picture.below.rstrip() for picture in drawn.values()] == ["│", "│ │", ""]


def test_too_wide_a_graph_is_not_drawn() -> None:
    wide: dict[str, list[str]] = {f"S{i}": [] for i in range(MAX_LANES + 1)} | {
        "S99": [f"S{i}" for i in range(MAX_LANES + 1)]
    }
    assert draw_dag(list(wide), wide, dict.fromkeys(wide, "#"), UNICODE) is None


@st.composite
def graphs(draw_from: st.DrawFn) -> dict[str, list[str]]:
    before: dict[str, list[str]] = {}
    for index in range(draw_from(st.integers(1, 9))):
        known = sorted(before)
        before[f"S{index}"] = draw_from(st.lists(st.sampled_from(known), unique=True, max_size=3)) if known else []
    return before


@given(graphs())
def test_the_edges_can_be_read_back_from_the_drawing(before: dict[str, list[str]]) -> None:
    drawn = draw_dag(list(before), before, dict.fromkeys(before, "#"), UNICODE)
    assert drawn is not None, "nine steps need no more than ten lanes"
    needed = {name for names in before.values() for name in names}
    holders: dict[int, str] = {}
    previous: str | None = None
    for step, picture in drawn.items():
        cells = picture.row[::CELL]
        assert len(picture.row) <= MAX_LANES * CELL
        lane = cells.index("#")
        assert cells.count("#") == 1
        read = {holders[index] for index, cell in enumerate(cells) if cell in "├┤┴╯"}
        if lane in holders:
            read.add(holders.pop(lane))
        assert read == set(before[step])
        for index, cell in enumerate(cells):
            if cell in "┴╯":
                del holders[index]
        if previous is not None and previous not in needed and _lane_of(drawn[previous].row) == lane:
            raise AssertionError("a mark right below one that has ended would look like its successor")
        if step in needed:
            holders[lane] = step
        previous = step


def _lane_of(row: str) -> int:
    return row[::CELL].index("#")
