"""The timeline shows when each step ran, and which steps are critical without relying on colour."""

import io

import pytest
from rich.console import Console

from orchestrator.cli.report_view import Bar, TimeSpan, axis, draw_bar, timeline
from orchestrator.cli.terminal import ASCII, UNICODE


def test_bars_cover_their_share_of_the_axis() -> None:
    assert draw_bar(Bar("S1", (TimeSpan(0.0, 5.0),)), 10.0, 10, ASCII).plain == "=====     "
    assert draw_bar(Bar("S2", (TimeSpan(5.0, 10.0),), critical=True), 10.0, 10, ASCII).plain == "     #####"


def test_a_failed_attempt_looks_different_from_the_one_that_followed() -> None:
    bar = Bar("S1", (TimeSpan(0.0, 4.0, "broken"), TimeSpan(5.0, 10.0)), critical=True)
    assert draw_bar(bar, 10.0, 10, ASCII).plain == "xxxx #####"


@pytest.mark.parametrize(("start", "end"), [(0.0, 0.0), (9.9999, 10.0), (10.0, 10.0), (4.0, 4.0001)])
def test_whatever_ran_can_be_seen(start: float, end: float) -> None:
    drawn = draw_bar(Bar("S1", (TimeSpan(start, end),)), 10.0, 20, UNICODE).plain
    assert len(drawn) == 20
    assert drawn.count(UNICODE.bar) == 1


def test_a_run_that_took_no_time_can_be_drawn() -> None:
    assert draw_bar(Bar("S1", (TimeSpan(0.0, 0.0),)), 0.0, 8, ASCII).plain == "=       "


def test_the_axis_fills_its_columns() -> None:
    assert axis(2.31, 24, ASCII) == "0 --------------- 2.31 s"


def test_critical_steps_are_marked_and_lines_fit_the_width() -> None:
    written = io.StringIO()
    console = Console(file=written, width=60, force_terminal=False)
    bars = [Bar("S1", (TimeSpan(0.0, 1.0),)), Bar("S2[10]", (TimeSpan(0.5, 2.0),), critical=True)]
    console.print(timeline(bars, 2.0, 60, UNICODE))
    lines = written.getvalue().splitlines()
    assert all(len(line) <= 60 for line in lines)
    assert [line[:8] for line in lines[1:]] == ["  S1    ", "* S2[10]"]
    assert lines[2].rstrip().endswith("1.50 s")
