"""Print the forecast of a run: the DAG, the reason of each edge, the waves and the critical path.

A forecast is the JSON object of `POST /v1/forecasts`.
"""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.cli.report_view import MANY, expected_seconds, facts, format_path, heading, listed
from orchestrator.cli.step_table import draw_dag
from orchestrator.cli.terminal import Glyphs, counted, glyphs, one_line, seconds, size
from orchestrator.task.events import CHANCE


def print_forecast(console: Console, forecast: Mapping[str, Any], *, full: bool) -> None:
    """Print the forecast. Without `full`, only the first steps and edges of a long plan."""
    signs = glyphs(console)
    report, mode = forecast["report"], forecast["mode"]
    edges, waves, path = report["edges"], report["waves"], report["critical_path"]
    console.print()
    console.print(Text(one_line(forecast["task"]["objective"]), style="bold"))
    console.print(f"dry run, nothing was run  {mode}  {counted(len(report['steps']), 'step')}")
    if forecast["reason"]:
        console.print(Text(one_line(forecast["reason"]), style="dim" if mode == "direct" else "yellow"))
    heading(console, "Steps", signs)
    _print_steps(console, forecast, signs, full=full)
    if after := forecast["goes_on_after"]:
        more = f"The plan continues after {after}, when its output is known; more steps may follow."
        console.print(Text(more, style="yellow"))
    if edges:
        heading(console, "Edges", signs)
        _print_edges(console, edges, signs, full=full)
    heading(console, "Waves", signs)
    for number, wave in enumerate(waves[: None if full else MANY], start=1):
        console.print(f"{number:3}  {listed(wave)}")
    heading(console, "Forecast", signs)
    table = facts()
    table.add_row("Critical path", format_path(path["steps"], signs))
    if forecast["has_data"]:
        _add_times(table, forecast)
    else:
        table.add_row(
            "", Text("no data: nothing like these steps has run here, so times cannot be predicted", "yellow")
        )
    direct, assumed = forecast["direct_seconds"], not forecast["direct_has_data"]
    if direct is not None and (forecast["has_data"] or not assumed):
        table.add_row("Direct answer", expected_seconds(direct, assumed=assumed))
    table.add_row("Width", f"{report['width']} in {counted(len(waves), 'wave')}")
    if forecast["memory_bytes"]:
        needed, budget = size(forecast["memory_bytes"]), size(forecast["memory_budget"])
        to_load = size(sum(forecast["bytes_to_load"].values()))
        table.add_row("Memory", f"{needed} of {budget} for its models, {to_load} still to load")
    console.print(table)


def _add_times(table: Table, forecast: Mapping[str, Any]) -> None:
    path = forecast["report"]["critical_path"]
    total = path["serial_seconds"]
    low, high = path["predicted_range"]
    likely = f"{seconds(low)} to {seconds(high)} in {round(10 * CHANCE)} of 10 cases"
    table.add_row("", f"{seconds(path['predicted_seconds'])}, {likely}; all steps one by one {seconds(total)}")
    table.add_row("Known from", Text(_known_from(forecast)))
    if path["bound"]:
        at_best = f"{seconds(total)} one by one over {seconds(path['best_seconds'])} at best"
        at_run = f"{seconds(total)} one by one over {seconds(forecast['run_seconds'])} as planned"
        table.add_row("Speedup", f"{path['predicted_speedup']:.2f} = {at_run}, predicted")
        table.add_row("Bound", f"{path['bound']:.2f} = {at_best}, predicted")


def _known_from(forecast: Mapping[str, Any]) -> str:
    steps = [step["predicted_from"] for step in forecast["report"]["steps"]]
    alike = sum(": " in prediction["basis"] for prediction in steps)
    by_role = sum(prediction["generations"] > 0 and ": " not in prediction["basis"] for prediction in steps)
    parts = ((alike, "by steps like them"), (by_role, "by others of their role"))
    phrases = [f"{count} of {len(steps)} {how}" for count, how in parts if count]
    assumed = len(steps) - alike - by_role
    return ", ".join([*phrases, *([f"{assumed} of {len(steps)} by nothing but assumptions"] if assumed else [])])


def _print_steps(console: Console, forecast: Mapping[str, Any], signs: Glyphs, *, full: bool) -> None:
    # Rows are in topological order, the steps of the report and of the task in that of the document.
    order = [row["id"] for row in forecast["rows"]]
    steps = {step["id"]: step for step in forecast["report"]["steps"]}
    lists = {step["id"] for step in forecast["task"]["plan"]["steps"] if step.get("foreach")}
    critical = set(forecast["report"]["critical_path"]["steps"])
    shown = order if full else order[:MANY]
    mark = signs.states["waiting"]
    before = {name: step["depends_on"] for name, step in steps.items()}
    pictures = draw_dag(order, before, dict.fromkeys(order, mark), signs) if shown == order else None
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for name in shown:
        step = steps[name]
        table.add_row(
            f"{'*' if name in critical else ' '} {pictures[name].row if pictures else mark}",
            Text(name, style="bold" if name in critical else ""),
            step["role"],
            f"~{seconds(step['predicted_seconds'])}" if forecast["has_data"] else "",
            Text(("for each: " if name in lists else "") + one_line(step["action"])),
        )
    console.print(table)
    if len(shown) < len(order):
        console.print(Text(f"{len(order) - len(shown)} more steps: add --all", style="dim"))
    console.print(Text("* on the predicted critical path", style="dim"))


def _print_edges(console: Console, edges: list[dict[str, Any]], signs: Glyphs, *, full: bool) -> None:
    shown = edges if full else edges[:MANY]
    table = Table.grid(padding=(0, 2, 0, 0))
    for edge in shown:
        dropped = ", dropped" if edge["dropped"] else ""
        ends = f"{edge['before']} {signs.arrow} {edge['after']}"
        table.add_row(ends, f"{edge['reason']}{dropped}", Text(one_line(edge["artifact"] or "")))
    console.print(table)
    if len(shown) < len(edges):
        console.print(Text(f"{len(edges) - len(shown)} more edges", style="dim"))
