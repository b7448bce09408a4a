"""Draw when each step ran, as bars over a common time axis.

Critical steps have a mark and a heavier bar, so that they stand out without colours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.cli.terminal import Glyphs, seconds

BAR_STYLES = {"critical": "bold yellow", "ran": "cyan", "broken": "red"}
MIN_WIDTH = 16  # columns of the axis
MARK = 2  # columns of the mark of a critical step
GAP = 2  # columns between those of the table


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A span of time, in seconds since the run was accepted. `broken` is an attempt that failed or was cancelled."""

    start: float
    end: float
    kind: Literal["ran", "broken"] = "ran"


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of the timeline: a step and its attempts."""

    label: str
    spans: tuple[TimeSpan, ...]
    critical: bool = False

    @property
    def seconds(self) -> float | None:
        """Seconds from the start of the first attempt to the end of the last one; None without attempts."""
        if not self.spans:
            return None
        return max(span.end for span in self.spans) - min(span.start for span in self.spans)


def timeline(bars: Sequence[Bar], total: float, width: int, signs: Glyphs) -> RenderableType:
    """Return the timeline of a run of `total` seconds, `width` columns wide."""
    labels = max((len(bar.label) for bar in bars), default=0)
    times = max((len(seconds(bar.seconds)) for bar in bars), default=0)
    columns = max(MIN_WIDTH, width - (labels + MARK) - times - 2 * GAP)
    table = Table.grid(padding=(0, GAP, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, width=columns)
    table.add_column(no_wrap=True, justify="right")
    table.add_row("", Text(axis(total, columns, signs), style="dim"), "")
    for bar in bars:
        mark = "*" if bar.critical else " "
        label = Text(f"{mark} {bar.label}", style="bold" if bar.critical else "")
        table.add_row(label, draw_bar(bar, total, columns, signs), Text(seconds(bar.seconds)))
    return table


def axis(total: float, columns: int, signs: Glyphs) -> str:
    right = f" {seconds(total)}"
    return f"0 {signs.rule * (columns - 2 - len(right))}{right}"


def draw_bar(bar: Bar, total: float, columns: int, signs: Glyphs) -> Text:
    cells = [" "] * columns
    styles = [""] * columns
    for span in bar.spans:
        first, last = _columns(span, total, columns)
        kind = "broken" if span.kind == "broken" else "critical" if bar.critical else "ran"
        sign = {"broken": signs.broken, "critical": signs.critical, "ran": signs.bar}[kind]
        for column in range(first, last + 1):
            cells[column], styles[column] = sign, BAR_STYLES[kind]
    drawn = Text()
    for cell, style in zip(cells, styles, strict=True):
        drawn.append(cell, style=style)
    return drawn


def _columns(span: TimeSpan, total: float, columns: int) -> tuple[int, int]:
    scale = columns / total if total > 0 else 0.0
    # At least one column, so that short spans are visible.
    first = min(columns - 1, max(0, int(span.start * scale)))
    last = min(columns - 1, max(first, round(span.end * scale) - 1))
    return first, last
