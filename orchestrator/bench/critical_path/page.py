"""Draw a session as one HTML page that needs nothing else: no script, no font, no address. Pure.

Plots are SVG with classes, so that the page's style decides their colours in light and in dark.
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from html import escape
from math import floor, log10
from typing import Final

from orchestrator.bench.critical_path.measure import (
    Interval,
    PathTime,
    StepBar,
    TaskMeasurement,
    WorkloadSummary,
    summaries,
)
from orchestrator.bench.critical_path.sessions import MeasuringSession

WIDTH: Final = 600  # the width of a plot in its own units; the page scales it
LABEL: Final = 100
ROW: Final = 22
TICKS: Final = 5  # the parts of an axis, about
# What the figures of the page mean.
MEANINGS: Final = {
    "wall time": "from the acceptance of the task to its end; the median of the warm rounds",
    "cold, warm": "the first round after the models were loaded is cold: none of its prompts has been computed before; "
    "later rounds find them in the cache and are warm",
    "critical path": "the chain of steps, each waiting for the one before, that took longest; predicted before the run "
    "from the rates of earlier ones, and measured",
    "critical steps": "how many attempts had to come one after the other; of steps side by side, the longest counts",
    "serial": "the same task with its steps one after the other",
    "speedup": "the time of the serial run over that of the run as planned, in pairs; in brackets the 95 % interval",
    "bound": "the most that any schedule could gain over one by one on this machine, by the measured costs of the "
    "engines' steps",
    "efficiency": "the time of the best schedule over the wall time; 1 is as good as can be. Of tasks that run at the "
    "same time, each is judged as if it had the machine to itself",
    "width": "how many steps ran at once: the most, and the mean over the time",
    "memory": "the most that the orchestrator and its engines took together",
}
# What the parts of `PathTime` are called.
PARTS: Final = {
    "queued": "waiting for a slot",
    "prefill": "reading prompts",
    "decode": "writing answers",
    "gates": "gates",
    "tools": "tools",
    "ours": "our own part of steps",
    "between": "between steps",
}

STYLE: Final = """
:root { color-scheme: light dark; --paper: #fbfaf7; --ink: #23262b; --soft: #6a6f78; --line: #dcd9d0; --card: #ffffff;
 --critical: #c8501e; --ran: #4a7fa8; --queued: #cfd6dc; --prefill: #7a9e5f; --decode: #4a7fa8; --gates: #a06bb0;
 --tools: #c79a2a; --ours: #c8501e; --between: #a9a497; }
@media (prefers-color-scheme: dark) { :root { --paper: #16181c; --ink: #e6e4de; --soft: #9aa0aa; --line: #33373f;
 --card: #1e2127; --critical: #ef8354; --ran: #6fa8d6; --queued: #434952; --prefill: #98c379; --decode: #6fa8d6;
 --gates: #c594d6; --tools: #e0b84e; --ours: #ef8354; --between: #77736a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 24px 16px 64px; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 4px; } h2 { font-size: 1.25rem; margin: 40px 0 4px; }
h3 { font-size: 1rem; margin: 20px 0 6px; } p { margin: 4px 0 12px; max-width: 70ch; }
.soft { color: var(--soft); } a { color: inherit; }
nav { display: flex; flex-wrap: wrap; gap: 6px 16px; margin: 12px 0; }
summary { cursor: pointer; color: var(--soft); margin: 10px 0; } dl { margin: 0 0 12px; max-width: 80ch; }
dt { font-weight: 600; margin-top: 8px; } dd { margin: 0; color: var(--soft); }
.wide { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 8px;
 padding: 8px 12px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { text-align: right; padding: 5px 10px; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { font-weight: 600; color: var(--soft); } th:first-child, td:first-child { text-align: left; }
tr:last-child td { border-bottom: 0; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; margin: 12px 0; }
.fact { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 8px 12px; }
.fact b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
.fact b small { display: block; font-size: .85rem; font-weight: 400; }
.fact span { display: block; color: var(--soft); font-size: .85rem; line-height: 1.35; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 0 16px;
 align-items: start; }
.tall { max-height: 480px; overflow-y: auto; }
.bars th, .bars td { padding: 4px 8px; border: 0; } .bars th:last-child { text-align: left; }
.bars td:last-child { width: 99%; min-width: 90px; }
.bars i { display: block; height: 12px; border-radius: 3px; background: var(--ran); min-width: 2px; }
svg { display: block; width: 100%; height: auto; } svg text { fill: var(--ink); font-size: 14px; }
@media (max-width: 600px) { svg text { font-size: 20px; } main { padding: 16px 12px 48px; }
 .bars th, .bars td { padding: 4px 5px; } .bars td:first-child { white-space: normal; }
 .bars td:last-child { min-width: 70px; } }
svg .tick { fill: var(--soft); } svg .grid { stroke: var(--line); stroke-width: 1; }
.bar { fill: var(--ran); } .bar.on { fill: var(--critical); } .waiting { fill: var(--queued); }
.area { fill: var(--ran); opacity: .35; } .edge { fill: none; stroke: var(--ran); stroke-width: 1.5; }
.dot { fill: var(--critical); } .reach { stroke: var(--critical); stroke-width: 1.5; }
.strip { display: flex; height: 26px; border-radius: 6px; overflow: hidden; margin: 4px 0 8px; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: .88rem; padding: 0; margin: 6px 0 0;
 list-style: none; }
.k-critical { background: var(--critical); } .k-ran { background: var(--ran); } .k-queued { background: var(--queued); }
.key { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 6px; }
""" + "".join(f".p-{name} {{ background: var(--{name}); }}\n" for name in PARTS)


def page(session: MeasuringSession) -> str:
    """Return the page of a session."""
    task_summaries = summaries(session.rows)
    body = "".join(
        [
            _head(session, task_summaries),
            _overview(task_summaries),
            *(_section(session, summary) for summary in task_summaries),
        ]
    )
    return document("Critical paths", body)


def history_page(sessions: Sequence[MeasuringSession]) -> str:
    """Return a page that plots the wall time of each task over all sessions, the oldest first."""
    points: dict[str, list[tuple[str, WorkloadSummary]]] = {}
    for session in sessions:
        for summary in summaries(session.rows):
            points.setdefault(summary.task, []).append((session.id, summary))
    about = (
        "How long each task took, by session, the oldest first: the median of the warm rounds as a dot, and a "
        "line from the fastest to the slowest round. Sessions with other models or rounds stand beside each other as "
        "they are."
    )
    parts = []
    for task, task_points in points.items():
        parts.append(f"<div><h2>{escape(task)}</h2><div class='wide'>{_over_time(task_points)}</div></div>")
    head = f"<h1>Critical paths over time</h1><p class='soft'>{about}</p>"
    return document("Critical paths over time", f"{head}<div class='pair'>{''.join(parts)}</div>")


def timeline_picture(title: str, row: TaskMeasurement) -> str:
    """Return a picture of its own, in SVG, of when each step of a run ran."""
    height = ROW * (len(row.bars) + 1) + 36
    _, _, drawn = _timeline(row.bars, row.wall).partition(">")
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='-8 -24 {WIDTH + 16} {height}' role='img'>"
        f"<title>{escape(title)}</title><style>{STYLE}.paper {{ fill: var(--paper); }}</style>"
        f"<rect class='paper' x='-8' y='-24' width='{WIDTH + 16}' height='{height}'/>"
        f"<text x='0' y='-10'>{escape(title)}</text>{drawn}\n"
    )


def line_plot(label: str, values: Sequence[tuple[int, float]], unit: str) -> str:
    """Return a plot of a value by a number of something, called `unit`, with the last value marked."""
    height, top, ground = 220, 16, 180
    low, high = min([0.0, *(value for _, value in values)]), max([0.0, *(value for _, value in values)])
    most, span = max([1, *(at for at, _ in values)]), (high - low) or 1.0
    spots = [
        (LABEL + (WIDTH - LABEL - 8) * at / most, ground - (ground - top) * (value - low) / span)
        for at, value in values
    ]
    axis = [(ground - (ground - top) * part, f"{low + span * part:.3g}") for part in (0.0, 0.5, 1.0)]
    ends = (
        f"<text class='tick' x='{LABEL}' y='{height - 8}'>0</text>"
        f"<text class='tick' text-anchor='end' x='{WIDTH}' y='{height - 8}'>{most:,} {escape(unit)}</text>"
    )
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
    dots = [f"<circle class='dot' cx='{x:.1f}' cy='{y:.1f}' r='5'/>" for x, y in spots[-1:]]
    drawn = [_value_axis(axis), ends, f"<polyline class='edge' points='{line}'/>", *dots]
    return _svg(height, escape(label, quote=True), drawn)


def document(title: str, body: str) -> str:
    """Return a page of its own, with the style of all of them."""
    meta = "<meta charset='utf-8'><meta name='viewport' content='width=device-width, initial-scale=1'>"
    head = f"<head>{meta}<title>{escape(title)}</title><style>{STYLE}</style></head>"
    return f"<!doctype html>\n<html lang='en'>{head}<body><main>{body}</main></body></html>\n"


def _head(session: MeasuringSession, task_summaries: Sequence[WorkloadSummary]) -> str:
    when = datetime.fromtimestamp(session.began, UTC).strftime("%d %B %Y, %H:%M UTC")
    cores = f"{session.machine.get('processor')}, {session.machine.get('cores')} logical cores"
    models = ", ".join(map(str, session.stamp.get("models", ())))
    state = "" if session.complete else " <b>This session is not complete.</b>"
    rounds = session.stamp.get("rounds")
    rounds_note = f" · {rounds} warm round{'s' if rounds != 1 else ''} each" if rounds else ""
    links = "".join(f"<a href='#{_anchor(summary)}'>{escape(summary.task)}</a>" for summary in task_summaries)
    return (
        f"<h1>Critical paths</h1><p class='soft'>{escape(when)} · {escape(cores)} · {escape(models)}{rounds_note}</p>"
        f"<p>How long tasks took from their acceptance to their end, and how much of that no schedule could have saved "
        f"on this machine. A speedup stands only where the same task ran serially too, in pairs.{state}</p>"
        f"<nav>{links}</nav>"
    )


def _overview(task_summaries: Sequence[WorkloadSummary]) -> str:
    heads = (
        "Workload",
        "Wall",
        "Predicted path",
        "Path",
        "Serial",
        "Speedup",
        "Bound",
        "Efficiency",
        "Width",
        "Memory",
    )
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in _cells(summary))}</tr>" for summary in task_summaries
    )
    table = f"<table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>{rows}</table>"
    plots = (
        f"<div class='pair'><div><h3>Efficiency, by how many steps ran at once</h3>{_efficiency(task_summaries)}</div>"
        "<div><h3>What the orchestrator itself takes for each step, by the number of steps</h3>"
        f"{_growth(task_summaries)}</div>"
        "</div>"
        if task_summaries
        else ""
    )
    meanings = "".join(f"<dt>{name}</dt><dd>{escape(meaning)}.</dd>" for name, meaning in MEANINGS.items())
    about = f"<details><summary>What the figures mean</summary><dl>{meanings}</dl></details>"
    return f"<div class='wide'>{table}</div>{about}{plots}"


def _cells(summary: WorkloadSummary) -> list[str]:
    return [
        summary.task,
        seconds(summary.wall),
        seconds(summary.predicted),
        seconds(summary.path),
        "-" if summary.serial is None else seconds(summary.serial),
        interval(summary.speedup),
        f"{summary.bound:.2f}",
        f"{summary.efficiency:.2f}",
        f"{summary.width}",
        f"{summary.peak_bytes / 2**20:.0f} MiB" if summary.peak_bytes else "-",
    ]


def _section(session: MeasuringSession, summary: WorkloadSummary) -> str:
    shown = [row for row in session.rows if row.task == summary.task and row.way == "as-planned"][-1]
    facts = {
        "wall time, warm": seconds(summary.wall),
        "wall time, cold": "-" if summary.cold is None else seconds(summary.cold),
        "efficiency": f"{summary.efficiency:.2f}",
        "speedup over serial": interval(summary.speedup),
        "bound": f"{summary.bound:.2f}",
        "predicted over measured path": "-"
        if summary.prediction_error is None
        else f"{1 + summary.prediction_error:.2f}",
        "critical steps": str(summary.critical_steps),
        "tokens on the path": f"{summary.tokens_on_path:,}",
        "tokens off the path": f"{summary.tokens_off_path:,}",
        "mean width": f"{summary.mean_width:.1f}",
        f"of {summary.steps:,} steps done": f"{summary.done:,}",
        "steps tried again": str(summary.retried),
    }
    cards = "".join(
        f"<div class='fact'><b>{_with_small_range(value)}</b><span>{name}</span></div>" for name, value in facts.items()
    )
    note = (
        f" These are the critical and the longest {len(shown.bars)} of {shown.steps:,} steps."
        if len(shown.bars) < shown.steps
        else ""
    )
    return (
        f"<h2 id='{_anchor(summary)}'>{escape(summary.task)}</h2><div class='facts'>{cards}</div>"
        f"<h3>Where the time of the critical path went</h3>{_strip(summary.where)}"
        f"<div class='pair'><div><h3>When each step ran</h3><p class='soft'>Run {escape(shown.run)}.{note}</p>"
        f"<div class='wide tall'>{_timeline(shown.bars, shown.wall)}</div>{_STEP_COLOURS}</div>"
        f"<div><h3>How many steps ran at once</h3><p class='soft'>Over the same {seconds(shown.wall)}.</p>"
        f"<div class='wide'>{_widths(shown)}</div></div></div>"
    )


_STEP_COLOURS: Final = "<ul class='legend'>" + "".join(
    f"<li><span class='key k-{name}'></span>{told}</li>"
    for name, told in (("critical", "critical path"), ("ran", "other steps"), ("queued", "waiting for a slot"))
) + "</ul>"  # fmt: skip


def _with_small_range(value: str) -> str:
    """Return a figure in HTML, with what stands in brackets after it in smaller letters on a line of its own."""
    figure, _, rest = escape(value).partition(" (")
    return f"{figure}<small>{rest.removesuffix(')')}</small>" if rest else figure


def _strip(where: PathTime) -> str:
    parts = {field.name: getattr(where, field.name) for field in fields(where)}
    total = sum(parts.values()) or 1.0
    bars = "".join(
        f"<div class='p-{name}' style='width:{100 * value / total:.2f}%' title='{PARTS[name]}'></div>"
        for name, value in parts.items()
    )
    keys = "".join(
        f"<li><span class='key p-{name}'></span>{PARTS[name]} {seconds(value)} ({100 * value / total:.0f} %)</li>"
        for name, value in parts.items()
        if value > 0
    )
    return f"<div class='strip'>{bars}</div><ul class='legend'>{keys}</ul>"


def _timeline(bars: Sequence[StepBar], wall: float) -> str:
    height = ROW * (len(bars) + 1) + 4
    scale = (WIDTH - LABEL - 8) / (wall or 1.0)
    drawn = [_time_axis(wall, scale, 15, (ROW, height))]
    for at, bar in enumerate(bars, start=1):
        top, left = at * ROW + 4, LABEL + bar.start * scale
        width, waited = max(1.0, (bar.end - bar.start) * scale), bar.queued * scale
        title = f"{bar.step}: {seconds(bar.start)} to {seconds(bar.end)}, {seconds(bar.queued)} of it waiting"
        title += f", {bar.tries} attempts" if bar.tries > 1 else ""
        kind = "bar on" if bar.critical else "bar"
        drawn.append(
            f"<g><title>{escape(title)}</title><text x='0' y='{top + 12}'>{escape(_cut(bar.step))}</text>"
            f"<rect class='{kind}' x='{left:.1f}' y='{top}' width='{width:.1f}' height='14' rx='2'/>"
            f"<rect class='waiting' x='{left:.1f}' y='{top}' width='{waited:.1f}' height='14' rx='2'/></g>"
        )
    return _svg(height, "when each step ran", drawn)


def _cut(name: str) -> str:
    """Return a name, cut to fit next to a bar."""
    return name if len(name) <= _LABEL_LETTERS else f"{name[: _LABEL_LETTERS - 1]}…"


_LABEL_LETTERS: Final = 9


def _widths(row: TaskMeasurement) -> str:
    height, top = 220, max((count for _, count in row.widths), default=0) or 1
    scale, unit = (WIDTH - LABEL - 8) / (row.wall or 1.0), (height - 48) / top
    ground = height - 32
    points, before = [f"{LABEL},{ground}"], 0
    for at, count in (*row.widths, (row.wall, 0)):
        x = LABEL + min(at, row.wall) * scale
        points += [f"{x:.1f},{ground - before * unit:.1f}", f"{x:.1f},{ground - count * unit:.1f}"]
        before = count
    path = " ".join(points)
    axis = _time_axis(row.wall, scale, height - 8, (0, ground))
    marks = _value_axis((ground - at * unit, f"{at:.0f}") for at in _round_marks(top, least=1.0))
    shape = f"<polygon class='area' points='{path}'/><polyline class='edge' points='{path}'/>"
    return _svg(height, "how many steps ran at once", [axis, marks, shape])


def _efficiency(task_summaries: Sequence[WorkloadSummary]) -> str:
    """Return bars of the efficiencies, those of the narrowest tasks first."""
    ordered = sorted(task_summaries, key=lambda summary: (summary.width, summary.efficiency))
    rows = [(summary.task, f"{summary.width}", f"{summary.efficiency:.2f}", summary.efficiency) for summary in ordered]
    return _bar_table(("Workload", "At once", "Efficiency", "0 to 1"), rows)


def _growth(task_summaries: Sequence[WorkloadSummary]) -> str:
    """Return bars of what the orchestrator itself takes for each step on the critical path, the smallest tasks first.

    They stay equal where the cost of a step does not grow with the size of the task.
    """
    costs = {
        summary.task: (summary.where.ours + summary.where.between) / max(1, summary.critical_steps)
        for summary in task_summaries
    }
    highest = max(costs.values()) or 1.0
    ordered = sorted(task_summaries, key=lambda summary: summary.steps)
    rows = [
        (summary.task, f"{summary.steps:,}", seconds(costs[summary.task]), costs[summary.task] / highest)
        for summary in ordered
    ]
    return _bar_table(("Workload", "Steps", "A step", f"0 to {seconds(highest)}"), rows)


def _bar_table(heads: tuple[str, str, str, str], rows: Iterable[tuple[str, str, str, float]]) -> str:
    """Return a table whose last column has bars. Each row ends with the share of the full length that its bar has."""
    lines = "".join(
        f"<tr><td>{escape(name)}</td><td>{count}</td><td>{value}</td>"
        f"<td><i style='width:{100 * min(1.0, share):.1f}%'></i></td></tr>"
        for name, count, value, share in rows
    )
    return (
        f"<div class='wide'><table class='bars'><tr>{''.join(f'<th>{escape(head)}</th>' for head in heads)}</tr>"
        f"{lines}</table></div>"
    )


def _over_time(sessions: Sequence[tuple[str, WorkloadSummary]]) -> str:
    height, ground = 190, 150
    top = max(max(summary.walls, default=summary.wall) for _, summary in sessions) or 1.0
    unit = (ground - 16) / top
    drawn = [_value_axis((ground - at * unit, _mark(at)) for at in _round_marks(top))]
    step = (WIDTH - LABEL - 60) / max(1, len(sessions) - 1)
    for at, (name, summary) in enumerate(sessions):
        x = LABEL + 30 + at * step
        low, y, high = (ground - value * unit for value in (min(summary.walls), summary.wall, max(summary.walls)))
        drawn.append(
            f"<g><title>{escape(name)}: {seconds(summary.wall)}</title>"
            f"<line class='reach' x1='{x:.1f}' x2='{x:.1f}' y1='{low:.1f}' y2='{high:.1f}'/>"
            f"<circle class='dot' cx='{x:.1f}' cy='{y:.1f}' r='5'/></g>"
        )
    first, last = sessions[0][0], sessions[-1][0]
    drawn.append(f"<text class='tick' x='{LABEL}' y='{height - 8}'>{escape(first)}</text>")
    if last != first:
        drawn.append(f"<text class='tick' text-anchor='end' x='{WIDTH}' y='{height - 8}'>{escape(last)}</text>")
    return _svg(height, "wall time by session", drawn)


def _time_axis(wall: float, scale: float, text: float, lines: tuple[float, float]) -> str:
    """Return the marks of the time: texts at a height, and lines between two others."""
    top, bottom = lines
    return "".join(
        f"<line class='grid' x1='{LABEL + at * scale:.1f}' x2='{LABEL + at * scale:.1f}' y1='{top}' y2='{bottom}'/>"
        f"<text class='tick' text-anchor='middle' x='{min(LABEL + at * scale, WIDTH - 22):.1f}' y='{text}'>"
        f"{_mark(at)}</text>"
        for at in _round_marks(wall)
    )


def _value_axis(marks: Iterable[tuple[float, str]]) -> str:
    """Return lines across a plot, each at a height and with a text next to it."""
    return "".join(
        f"<line class='grid' x1='{LABEL}' x2='{WIDTH}' y1='{y:.1f}' y2='{y:.1f}'/>"
        f"<text class='tick' text-anchor='end' x='{LABEL - 8}' y='{y + 5:.1f}'>{label}</text>"
        for y, label in marks
    )


def _round_marks(most: float, least: float = 0.0) -> list[float]:
    """Return marks from 0 to `most` at distances of 1, 2 or 5 times a power of ten, and of `least` at least."""
    if most <= 0:
        return [0.0]
    least_distance = most / TICKS
    power = 10.0 ** floor(log10(least_distance))
    distance = max(least, next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least_distance * 0.999))
    return [at * distance for at in range(int(most / distance + 1e-9) + 1)]


def _mark(at: float) -> str:
    """Return a duration that is a round figure."""
    return "0" if at == 0 else f"{1000 * at:.0f} ms" if at < 1 else f"{at:g} s"


def _svg(height: float, label: str, parts: Iterable[str]) -> str:
    """Return a plot, whose letters the page makes larger on a narrow screen."""
    return f"<svg viewBox='0 0 {WIDTH} {height}' role='img' aria-label='{label}'>{''.join(parts)}</svg>"


def _anchor(summary: WorkloadSummary) -> str:
    return escape(summary.task.replace(" ", "-"), quote=True)


def seconds(value: float) -> str:
    """Return a duration in few characters."""
    if value < 1:
        return f"{1000 * value:.0f} ms"
    return f"{value:.2f} s" if value < 100 else f"{value:.0f} s"


def interval(found: Interval | None) -> str:
    """Return a ratio with its interval, or a dash where nothing was paired."""
    if found is None:
        return "-"
    if found.low is None or found.high is None:
        return f"{found.median:.2f} (one pair)"
    return f"{found.median:.2f} ({found.low:.2f} to {found.high:.2f})"
