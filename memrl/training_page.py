"""Write the page of a training: one plot per figure, with the numbers as a table."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.bench.critical_path.page import document, line_plot


def training_page(
    title: str,
    unit: str,
    places: Sequence[int],
    series: Mapping[str, tuple[str, Sequence[float]]],
    rows: Sequence[Mapping[str, Any]],
) -> str:
    """Return the HTML page, which loads nothing.

    `places` count `unit` on the horizontal axis. `series` has what a figure means and its values, by its name. `rows`
    are shown as a table.
    """
    charts = "".join(_chart(name, about, places, values, unit) for name, (about, values) in series.items())
    last = places[-1] if places else 0
    body = (
        f"<h1>{html.escape(title)}</h1><p class='soft'>{last:,} {unit}</p><div class='pair'>{charts}</div>"
        f"<details><summary>Numbers</summary>{_table(rows)}</details>"
    )
    return document(title, body)


def _chart(name: str, about: str, places: Sequence[int], values: Sequence[float], unit: str) -> str:
    last = f"{values[-1]:.3g}" if values else "none yet"
    plot = line_plot(f"{name}, {about}: {last}", [*zip(places, values, strict=True)], unit)
    return (
        f"<div><h3>{html.escape(name)}: {last}</h3><p class='soft'>{html.escape(about)}</p>"
        f"<div class='wide'>{plot}</div></div>"
    )


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    head = "".join(f"<th scope='col'>{html.escape(name)}</th>" for name in (rows[0] if rows else ()))
    body = "".join(f"<tr>{''.join(f'<td>{_number(value)}</td>' for value in row.values())}</tr>" for row in rows)
    return f"<div class='wide' tabindex='0'><table><tr>{head}</tr>{body}</table></div>"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
