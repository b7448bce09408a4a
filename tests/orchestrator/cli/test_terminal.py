"""What is written to a terminal is safe, and what is written to a pipe is plain."""

import io
import os
import pty

import pytest
from rich.text import Text

from orchestrator.cli.terminal import CONTROL, make_console, one_line, printable, seconds, size


def test_control_characters_are_shown_and_not_sent() -> None:
    hostile = "a\x1b[2Jb\x07c\x9bd\u202ee\rf"
    shown = printable(hostile)
    assert not CONTROL.search(shown)
    assert shown == r"a\x1b[2Jb\x07c\x9bd\u202ee\rf"


def test_lines_and_tabs_stay() -> None:
    assert printable("a\tb\r\nc\n") == "a\tb\nc\n"
    assert one_line(" a\tb\r\n  c ") == "a b c"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0, "0.00 s"), (9.994, "9.99 s"), (9.996, "10.0 s"), (99.96, "1 min 40 s"), (3725.0, "1 h 02 min")],
)
def test_durations_read_well(value: float | None, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")])
def test_sizes_read_well(count: int, text: str) -> None:
    assert size(count) == text


def test_a_pipe_gets_no_control_codes_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = io.StringIO()
    make_console(stream).print(Text("bold  ", style="bold red"))
    assert stream.getvalue() == "bold\n"


@pytest.mark.parametrize(("term", "coloured"), [("xterm-256color", True), ("dumb", False)])
def test_a_terminal_gets_colours_if_it_can_show_them(
    monkeypatch: pytest.MonkeyPatch, term: str, coloured: bool
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.delenv("NO_COLOR", raising=False)
    leader, follower = pty.openpty()
    with open(follower, "w") as file:
        make_console(file).print(Text("x", style="bold red"))
    written = os.read(leader, 100)
    os.close(leader)
    assert (b"\x1b[" in written) is coloured
