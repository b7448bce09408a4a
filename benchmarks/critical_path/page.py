"""Draw a session as one HTML page that needs nothing else: no script, no font, no address. Pure.

Plots are SVG with classes, so that the page's style decides their colours in light and in dark.
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from html import escape
from math import log
from typing import Final

from benchmarks.critical_path.measure import Interval, PathTime, StepBar, TaskMeasurement, WorkloadSummary, summaries
from benchmarks.critical_path.sessions import MeasuringSession

WIDTH: Final = 720
"""The width of a plot in its own units; the page scales it."""
LABEL: Final = 78
ROW: Final = 16
PARTS: Final = {
    "queued": "waiting for a slot",
    "prefill": "reading prompts",
    "decode": "writing answers",
    "gates": "gates",
    "tools": "tools",
    "ours": "our own part of steps",
    "between": "between steps",
}
"""What the parts of `PathTime` are called."""

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
.soft { color: var(--soft); } nav { margin: 12px 0; line-height: 2; } a { color: inherit; }
nav a { margin-right: 14px; white-space: nowrap; }
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
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 16px; }
svg { display: block; width: 100%; height: auto; } svg text { fill: var(--ink); font-size: 12.5px; }
svg.rows { min-width: 520px; }
@media (max-width: 600px) { svg:not(.rows) text { font-size: 20px; } }
svg .tick { fill: var(--soft); } svg .grid { stroke: var(--line); stroke-width: 1; }
.bar { fill: var(--ran); } .bar.on { fill: var(--critical); } .waiting { fill: var(--queued); }
.area { fill: var(--ran); opacity: .35; } .edge { fill: none; stroke: var(--ran); stroke-width: 1.5; }
.dot { fill: var(--critical); } .reach { stroke: var(--critical); stroke-width: 1.5; }
.strip { display: flex; height: 26px; border-radius: 6px; overflow: hidden; margin: 4px 0 8px; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: .88rem; padding: 0; margin: 0; list-style: none; }
.key { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 6px; }
""" + "".join(f".p-{name} {{ background: var(--{name}); }}\n" for name in PARTS)


def page(session: MeasuringSession) -> str:
    """Return the page of a session."""
    found = summaries(session.rows)
    body = "".join([_head(session, found), _overview(found), *(_section(session, one) for one in found)])
    return _document("Critical paths", body)


def history_page(sessions: Sequence[MeasuringSession]) -> str:
    """Return a page that plots the wall time of each task over all sessions, the oldest first."""
    points: dict[str, list[tuple[str, WorkloadSummary]]] = {}
    for session in sessions:
        for one in summaries(session.rows):
            points.setdefault(one.task, []).append((session.id, one))
    about = (
        "The median wall time of the warm rounds, with the fastest and the slowest round. "
        "Sessions with other models or rounds stand beside each other as they are."
    )
    parts = [f"<h1>Critical paths over time</h1><p class='soft'>{about}</p>"]
    for task, some in points.items():
        parts.append(f"<h2>{escape(task)}</h2><div class='wide'>{_over_time(some)}</div>")
    return _document("Critical paths over time", "".join(parts))


def timeline_picture(title: str, row: TaskMeasurement) -> str:
    """Return a picture of its own, in SVG, of when each step of a run ran."""
    height = ROW * len(row.bars) + 44
    _, _, drawn = _timeline(row.bars, row.wall).partition(">")
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='-8 -24 {WIDTH + 16} {height}' role='img'>"
        f"<title>{escape(title)}</title><style>{STYLE}.paper {{ fill: var(--paper); }}</style>"
        f"<rect class='paper' x='-8' y='-24' width='{WIDTH + 16}' height='{height}'/>"
        f"<text x='0' y='-10'>{escape(title)}</text>{drawn}\n"
    )


def _document(title: str, body: str) -> str:
    meta = "<meta charset='utf-8'><meta name='viewport' content='width=device-width, initial-scale=1'>"
    head = f"<head>{meta}<title>{escape(title)}</title><style>{STYLE}</style></head>"
    return f"<!doctype html>\n<html lang='en'>{head}<body><main>{body}</main></body></html>\n"


def _head(session: MeasuringSession, found: Sequence[WorkloadSummary]) -> str:
    when = datetime.fromtimestamp(session.began, UTC).strftime("%d %B %Y, %H:%M UTC")
    cores = f"{session.machine.get('processor')}, {session.machine.get('cores')} logical cores"
    models = ", ".join(map(str, session.stamp.get("models", ())))
    state = "" if session.complete else " <b>This session is not complete.</b>"
    links = "".join(f"<a href='#{_anchor(one)}'>{escape(one.task)}</a>" for one in found)
    return (
        f"<h1>Critical paths</h1><p class='soft'>{escape(when)} · {escape(cores)} · {escape(models)}</p>"
        f"<p>How long tasks took from their acceptance to their end, and how much of that no schedule could have saved "
        f"on this machine. A speedup stands only where the same task ran serially too, in pairs.{state}</p>"
        f"<nav>{links}</nav>"
    )


def _overview(found: Sequence[WorkloadSummary]) -> str:
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
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in _cells(one))}</tr>" for one in found)
    table = f"<table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>{rows}</table>"
    plots = (
        f"<div class='pair'><div><h3>Efficiency against width</h3><div class='wide'>{_efficiency(found)}</div></div>"
        f"<div><h3>Our own part of each step, by the number of steps</h3><div class='wide'>{_growth(found)}</div></div>"
        "</div>"
        if found
        else ""
    )
    about = (
        "<p class='soft'>Wall is the median of the warm rounds. The bound is what the steps would take one by one over "
        "what the best schedule takes at least, by the engines' step costs. Efficiency is the time of that best "
        "schedule over the wall time.</p>"
    )
    return f"<div class='wide'>{table}</div>{about}{plots}"


def _cells(one: WorkloadSummary) -> list[str]:
    return [
        one.task,
        seconds(one.wall),
        seconds(one.predicted),
        seconds(one.path),
        "-" if one.serial is None else seconds(one.serial),
        interval(one.speedup),
        f"{one.bound:.2f}",
        f"{one.efficiency:.2f}",
        f"{one.width}",
        f"{one.peak_bytes / 2**20:.0f} MiB" if one.peak_bytes else "-",
    ]


def _section(session: MeasuringSession, one: WorkloadSummary) -> str:
    shown = [row for row in session.rows if row.task == one.task and row.way == "as-planned"][-1]
    facts = {
        "wall time, warm": seconds(one.wall),
        "wall time, cold": "-" if one.cold is None else seconds(one.cold),
        "efficiency": f"{one.efficiency:.2f}",
        "speedup, paired": interval(one.speedup),
        "bound": f"{one.bound:.2f}",
        "predicted over measured path": "-" if one.prediction_error is None else f"{1 + one.prediction_error:.2f}",
        "critical steps": str(one.critical_steps),
        "tokens on the path": f"{one.tokens_on_path:,}",
        "tokens off the path": f"{one.tokens_off_path:,}",
        "mean width": f"{one.mean_width:.1f}",
        "steps done": f"{one.done} of {one.steps}",
        "steps tried again": str(one.retried),
    }
    cards = "".join(
        f"<div class='fact'><b>{_with_small_range(value)}</b><span>{name}</span></div>" for name, value in facts.items()
    )
    note = (
        f"The {len(shown.bars)} longest and critical of {shown.steps} steps." if len(shown.bars) < shown.steps else ""
    )
    return (
        f"<h2 id='{_anchor(one)}'>{escape(one.task)}</h2><div class='facts'>{cards}</div>"
        f"<h3>Where the time of the critical path went</h3>{_strip(one.where)}"
        f"<div class='pair'><div><h3>When each step ran</h3><p class='soft'>Run {escape(shown.run)}; the critical path "
        f"has its own colour, and waiting for a slot is pale. {note}</p>"
        f"<div class='wide'>{_timeline(shown.bars, shown.wall)}</div></div>"
        f"<div><h3>How many steps ran at once</h3><div class='wide'>{_widths(shown)}</div></div></div>"
    )


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
    )
    return f"<div class='strip'>{bars}</div><ul class='legend'>{keys}</ul>"


def _timeline(bars: Sequence[StepBar], wall: float) -> str:
    height = ROW * len(bars) + 20
    scale = (WIDTH - LABEL - 8) / (wall or 1.0)
    drawn = [_time_axis(wall, height - 16, scale)]
    for at, bar in enumerate(bars):
        top, left = at * ROW + 2, LABEL + bar.start * scale
        width, waited = max(1.0, (bar.end - bar.start) * scale), bar.queued * scale
        told = f"{bar.step}: {seconds(bar.start)} to {seconds(bar.end)}, {seconds(bar.queued)} of it waiting"
        told += f", {bar.tries} attempts" if bar.tries > 1 else ""
        kind = "bar on" if bar.critical else "bar"
        drawn.append(
            f"<g><title>{escape(told)}</title><text x='0' y='{top + 10}'>{escape(bar.step[:10])}</text>"
            f"<rect class='{kind}' x='{left:.1f}' y='{top}' width='{width:.1f}' height='11' rx='2'/>"
            f"<rect class='waiting' x='{left:.1f}' y='{top}' width='{waited:.1f}' height='11' rx='2'/></g>"
        )
    return _svg(height, "when each step ran", drawn, kind="rows")


def _widths(row: TaskMeasurement) -> str:
    height, top = 190, max((count for _, count in row.widths), default=0) or 1
    scale, unit = (WIDTH - LABEL - 8) / (row.wall or 1.0), (height - 40) / top
    floor = height - 20
    points, before = [f"{LABEL},{floor}"], 0
    for at, count in (*row.widths, (row.wall, 0)):
        x = LABEL + min(at, row.wall) * scale
        points += [f"{x:.1f},{floor - before * unit:.1f}", f"{x:.1f},{floor - count * unit:.1f}"]
        before = count
    path = " ".join(points)
    axis = _time_axis(row.wall, floor, scale)
    marks = f"<text class='tick' x='0' y='{floor - top * unit + 4:.1f}'>{top} steps</text>"
    shape = f"<polygon class='area' points='{path}'/><polyline class='edge' points='{path}'/>"
    return _svg(height, "how many steps ran at once", [axis, marks, shape])


def _efficiency(found: Sequence[WorkloadSummary]) -> str:
    height, floor = 230, 200
    top = max(one.width for one in found) or 1
    drawn = []
    for level in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = floor - level * (floor - 16)
        line = f"<line class='grid' x1='{LABEL}' x2='{WIDTH}' y1='{y}' y2='{y}'/>"
        drawn.append(f"{line}<text class='tick' x='{LABEL - 36}' y='{y + 4}'>{level:.2f}</text>")
    drawn.append(f"<text class='tick' x='{LABEL}' y='{height - 4}'>1 step at once</text>")
    drawn.append(f"<text class='tick' text-anchor='end' x='{WIDTH}' y='{height - 4}'>{top} at once</text>")
    for at, one in enumerate(sorted(found, key=lambda some: (some.width, some.efficiency))):
        x = LABEL + 8 + (WIDTH - LABEL - 110) * (max(0, one.width - 1) / max(1, top - 1)) ** 0.5
        y = floor - min(1.0, one.efficiency) * (floor - 16)
        lift = 4 if at % 2 else -5
        drawn.append(
            f"<g><title>{escape(one.task)}: {one.efficiency:.2f} at width {one.width}</title>"
            f"<circle class='dot' cx='{x:.1f}' cy='{y:.1f}' r='4'/>"
            f"<text x='{x + 8:.1f}' y='{y + lift:.1f}'>{escape(one.task)}</text></g>"
        )
    return _svg(height, "efficiency against width", drawn)


def _growth(found: Sequence[WorkloadSummary]) -> str:
    """Return a plot of what the orchestrator itself takes for each step on the critical path.

    It stays level where the cost of a step does not grow with the size of the task. The axis of steps is logarithmic.
    """
    height, floor = 230, 200
    costs = {one.task: (one.where.ours + one.where.between) / max(1, one.critical_steps) for one in found}
    highest, most = max(costs.values()) or 1.0, max(one.steps for one in found)
    drawn = []
    for part in (0.0, 0.5, 1.0):
        y = floor - part * (floor - 16)
        line = f"<line class='grid' x1='{LABEL}' x2='{WIDTH}' y1='{y}' y2='{y}'/>"
        drawn.append(f"{line}<text class='tick' x='0' y='{y + 4}'>{1000 * part * highest:.1f} ms</text>")
    drawn.append(f"<text class='tick' x='{LABEL}' y='{height - 4}'>1 step</text>")
    drawn.append(f"<text class='tick' text-anchor='end' x='{WIDTH}' y='{height - 4}'>{most:,} steps</text>")
    for at, one in enumerate(sorted(found, key=lambda some: some.steps)):
        x = LABEL + 8 + (WIDTH - LABEL - 110) * log(max(1, one.steps)) / log(max(2, most))
        y = floor - costs[one.task] / highest * (floor - 16)
        lift = 4 if at % 2 else -5
        drawn.append(
            f"<g><title>{escape(one.task)}: {1000 * costs[one.task]:.1f} ms a step, {one.steps} steps</title>"
            f"<circle class='dot' cx='{x:.1f}' cy='{y:.1f}' r='4'/>"
            f"<text x='{x + 8:.1f}' y='{y + lift:.1f}'>{escape(one.task)}</text></g>"
        )
    return _svg(height, "our own part of each step by the number of steps", drawn)


def _over_time(some: Sequence[tuple[str, WorkloadSummary]]) -> str:
    height, floor = 150, 120
    top = max(max(one.walls, default=one.wall) for _, one in some) or 1.0
    drawn = [f"<line class='grid' x1='{LABEL}' x2='{WIDTH}' y1='{floor}' y2='{floor}'/>"]
    drawn.append(
        f"<text class='tick' x='0' y='20'>{seconds(top)}</text><text class='tick' x='0' y='{floor}'>0 s</text>"
    )
    step = (WIDTH - LABEL - 60) / max(1, len(some) - 1)
    for at, (name, one) in enumerate(some):
        x = LABEL + 30 + at * step
        low, y, high = (floor - value / top * (floor - 16) for value in (min(one.walls), one.wall, max(one.walls)))
        drawn.append(
            f"<g><title>{escape(name)}: {seconds(one.wall)}</title>"
            f"<line class='reach' x1='{x:.1f}' x2='{x:.1f}' y1='{low:.1f}' y2='{high:.1f}'/>"
            f"<circle class='dot' cx='{x:.1f}' cy='{y:.1f}' r='4'/></g>"
        )
    first, last = some[0][0], some[-1][0]
    drawn.append(f"<text class='tick' x='{LABEL}' y='{height - 8}'>{escape(first)}</text>")
    if last != first:
        drawn.append(f"<text class='tick' x='{WIDTH - 100}' y='{height - 8}'>{escape(last)}</text>")
    return _svg(height, "wall time over sessions", drawn)


def _time_axis(wall: float, floor: float, scale: float) -> str:
    marks = [wall * part / 4 for part in range(5)]
    lines = (f"<line class='grid' x1='{LABEL + at * scale:.1f}' x2='{LABEL + at * scale:.1f}' y1='0' y2='{floor}'/>"
             for at in marks)  # fmt: skip
    texts = (
        f"<text class='tick' text-anchor='{'end' if at == wall else 'start'}' x='{LABEL + at * scale:.1f}' "
        f"y='{floor + 14}'>{seconds(at)}</text>"
        for at in marks
    )
    return "".join((*lines, *texts))


def _svg(height: float, label: str, parts: Iterable[str], kind: str = "plot") -> str:
    """Return a plot. On a narrow screen `rows` keep their size and scroll in their box; others get larger letters."""
    return f"<svg class='{kind}' viewBox='0 0 {WIDTH} {height}' role='img' aria-label='{label}'>{''.join(parts)}</svg>"


def _anchor(one: WorkloadSummary) -> str:
    return escape(one.task.replace(" ", "-"), quote=True)


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
