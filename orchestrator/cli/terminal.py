"""Write to the terminal, a pipe or a file: consoles, glyphs for what the encoding can show, JSON and safe text.

Text that comes from files, models or the command line is never interpreted as markup, and its control characters are
escaped before it reaches a terminal.
"""

import io
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TextIO, cast

from rich.console import Console
from rich.table import Table

# Control characters except tab and line feed, marks of text direction, and lone surrogates.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
LINE_END = re.compile(r"[ \t]+\n")
WHITE = re.compile(r"\s+")
DEFAULT_COLUMNS = 80  # for a pipe or a file


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters that drawings are made of. `states` maps the state of a step to its mark."""

    states: Mapping[str, str]
    vertical: str
    horizontal: str
    tee: str
    tee_left: str
    join: str
    end: str
    critical: str
    bar: str
    broken: str
    rule: str
    arrow: str
    more: str


def _states(marks: str) -> Mapping[str, str]:
    return dict(zip(("waiting", "ready", "running", "checking", "done", "failed", "cancelled"), marks, strict=True))


UNICODE = Glyphs(
    states=_states("○◎●◐✓✗⊘"),
    vertical="│",
    horizontal="─",
    tee="├",
    tee_left="┤",
    join="┴",
    end="╯",
    critical="█",
    bar="━",
    broken="×",  # noqa: RUF001 - the sign is meant
    rule="─",
    arrow="→",
    more="…",
)
ASCII = Glyphs(
    states=_states("oO*?+x-"),
    vertical="|",
    horizontal="-",
    tee="|",
    tee_left="|",
    join="'",
    end="'",
    critical="#",
    bar="=",
    broken="x",
    rule="-",
    arrow="->",
    more="...",
)
STATE_STYLES = {
    "waiting": "dim",
    "ready": "cyan",
    "running": "bold blue",
    "checking": "magenta",
    "done": "green",
    "failed": "bold red",
    "cancelled": "yellow",
    "queued": "cyan",
    "planning": "bold blue",
}


def glyphs(console: Console) -> Glyphs:
    """Return the drawing characters that the console's encoding can show."""
    return ASCII if console.options.ascii_only else UNICODE


class TrimmedStream(io.TextIOBase):
    """Writes text to a pipe or a file without the spaces that tables put at the ends of lines."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        # Rich asks for it to choose drawing characters.
        return self._stream.encoding or "utf-8"

    def write(self, text: str) -> int:
        # `text` holds whole lines.
        self._stream.write(LINE_END.sub("\n", text))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()


class PipeConsole(Console):
    """Raises BrokenPipeError, which `write` handles. Rich would exit instead, and end the run with it."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def make_console(stream: TextIO) -> Console:
    """Return a console on `stream`. Only a terminal gets control codes, whatever the environment says."""
    terminal = stream.isatty()
    lively = terminal and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
    return PipeConsole(
        file=stream if terminal else cast(TextIO, TrimmedStream(stream)),
        force_terminal=lively,
        no_color=None if lively else True,
        width=None if terminal or "COLUMNS" in os.environ else DEFAULT_COLUMNS,
        highlight=False,
        markup=False,
        emoji=False,
    )


def harden_streams() -> None:
    """Make stdout and stderr escape characters that their encodings lack, instead of raising an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def printable(text: str) -> str:
    """Return `text` with control characters escaped. Line ends and tabs stay."""
    return CONTROL.sub(lambda match: repr(match.group())[1:-1], text.replace("\r\n", "\n"))


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def one_line(text: str) -> str:
    return WHITE.sub(" ", printable(text)).strip()


def seconds(value: float | None) -> str:
    """Return a duration for people: `0.42 s`, `12.3 s`, `3 min 05 s`, `2 h 07 min`; `-` for None."""
    if value is None:
        return "-"
    if value < 9.995:
        return f"{value:.2f} s"
    if value < 99.95:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def size(count: int) -> str:
    """Return a number of bytes in binary units: `512 B`, `4.1 MiB`."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def plain_table(*titles: str, right: Collection[str] = ()) -> Table:
    """Return an empty table without lines. The columns named in `right` are aligned to the right."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, justify="right" if title in right else "left", overflow="fold")
    return table


def print_json(data: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout: indented for a terminal, one line for a pipe."""
    indent = 2 if sys.stdout.isatty() else None
    text = json.dumps(data, indent=indent, ensure_ascii=False, allow_nan=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(data, indent=indent, allow_nan=False)
    text = CONTROL.sub(lambda match: f"\\u{ord(match.group()):04x}", text)
    write(lambda: print(text))


def print_lines(data: Mapping[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    """Print lines on stdout, with their control characters escaped, or `data` as JSON."""
    if as_json:
        print_json(data)
    else:
        write(lambda: print(printable("\n".join(lines))))


def print_result(data: Mapping[str, Any], printer: Callable[[Console], object], *, as_json: bool) -> None:
    """Let `printer` print on a console of stdout, or print `data` as JSON."""
    if as_json:
        print_json(data)
    else:
        write(lambda: printer(make_console(sys.stdout)))


def print_notes(kind: str, texts: Iterable[str]) -> None:
    """Print on stderr a line for each text, with its kind in front of it."""
    write(lambda: print("".join(f"{kind}: {printable(text)}\n" for text in texts), end="", file=sys.stderr))


def write(action: Callable[[], object]) -> None:
    """Run `action`, which prints. If the reader of a pipe has closed it, discard the rest of the output."""
    try:
        action()
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """From now on, discard output to a broken stdout or stderr, buffered text included."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if _is_broken(stream):
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _is_broken(stream: TextIO) -> bool:
    try:
        stream.flush()
    except OSError:
        return True
    return False
