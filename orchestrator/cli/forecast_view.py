"""Print the forecast of a run: the DAG, the reason of each edge, the waves and the critical path."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.cli.report_view import MANY, facts, format_path, heading, listed
from orchestrator.cli.step_table import draw_dag
from orchestrator.cli.terminal import Glyphs, counted, glyphs, one_line, seconds
from orchestrator.run.record.forecast import Forecast
from orchestrator.task.analysis import StepGraph
from orchestrator.task.events import CHANCE


def print_forecast(console: Console, forecast: Forecast, *, full: bool) -> None:
    """Print the forecast. Without `full`, only the first steps and edges of a long plan."""
    signs = glyphs(console)
    graph = forecast.graph
    console.print()
    console.print(Text(one_line(forecast.task.objective), style="bold"))
    console.print(f"dry run, nothing was run  {forecast.mode}  {counted(len(graph.steps), 'step')}")
    if forecast.reason:
        console.print(Text(one_line(forecast.reason), style="dim" if forecast.mode == "direct" else "yellow"))
    heading(console, "Steps", signs)
    _print_steps(console, forecast, signs, full=full)
    if forecast.goes_on_after:
        more = f"The plan continues after {forecast.goes_on_after}, when its output is known; more steps may follow."
        console.print(Text(more, style="yellow"))
    if graph.edges:
        heading(console, "Edges", signs)
        _print_edges(console, graph, signs, full=full)
    heading(console, "Waves", signs)
    for number, wave in enumerate(graph.waves[: None if full else MANY], start=1):
        console.print(f"{number:3}  {listed(wave)}")
    heading(console, "Forecast", signs)
    table = facts()
    table.add_row("Critical path", format_path(forecast.path.steps, signs))
    if forecast.has_data:
        _add_times(table, forecast)
    else:
        table.add_row(
            "", Text("no data: nothing like these steps has run here, so times cannot be predicted", "yellow")
        )
    table.add_row("Width", f"{graph.width} in {counted(len(graph.waves), 'wave')}")
    console.print(table)


def _add_times(table: Table, forecast: Forecast) -> None:
    total = forecast.serial_seconds
    low, high = forecast.path_range
    likely = f"{seconds(low)} to {seconds(high)} in {round(10 * CHANCE)} of 10 cases"
    table.add_row("", f"{seconds(forecast.path.seconds)}, {likely}; all steps one by one {seconds(total)}")
    table.add_row("Known from", Text(_known_from(forecast)))
    if forecast.bound:
        at_best = f"{seconds(total)} one by one over {seconds(forecast.best_seconds)} at best"
        at_run = f"{seconds(total)} one by one over {seconds(forecast.run_seconds)} as planned"
        table.add_row("Speedup", f"{forecast.speedup:.2f} = {at_run}, predicted")
        table.add_row("Bound", f"{forecast.bound:.2f} = {at_best}, predicted")


def _known_from(forecast: Forecast) -> str:
    steps = forecast.predicted.values()
    alike = sum(": " in prediction.basis for prediction in steps)
    by_role = sum(prediction.generations > 0 and ": " not in prediction.basis for prediction in steps)
    parts = ((alike, "by steps like them"), (by_role, "by others of their role"))
    phrases = [f"{count} of {len(steps)} {how}" for count, how in parts if count]
    assumed = len(steps) - alike - by_role
    return ", ".join([*phrases, *([f"{assumed} of {len(steps)} by nothing but assumptions"] if assumed else [])])


def _print_steps(console: Console, forecast: Forecast, signs: Glyphs, *, full: bool) -> None:
    graph, critical = forecast.graph, set(forecast.path.steps)
    shown = graph.order if full else graph.order[:MANY]
    mark = signs.states["waiting"]
    marks = dict.fromkeys(graph.order, mark)
    pictures = draw_dag(graph.order, graph.before, marks, signs) if shown == graph.order else None
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for step in shown:
        planned = graph.steps[step]
        table.add_row(
            f"{'*' if step in critical else ' '} {pictures[step].row if pictures else mark}",
            Text(step, style="bold" if step in critical else ""),
            planned.actor,
            f"~{seconds(forecast.predicted[step].seconds)}" if forecast.has_data else "",
            Text(("for each: " if planned.foreach else "") + one_line(planned.action)),
        )
    console.print(table)
    if len(shown) < len(graph.order):
        console.print(Text(f"{len(graph.order) - len(shown)} more steps: add --all", style="dim"))
    console.print(Text("* on the predicted critical path", style="dim"))


def _print_edges(console: Console, graph: StepGraph, signs: Glyphs, *, full: bool) -> None:
    edges = graph.edges if full else graph.edges[:MANY]
    table = Table.grid(padding=(0, 2, 0, 0))
    for edge in edges:
        dropped = ", dropped" if edge.dropped else ""
        ends = f"{edge.before} {signs.arrow} {edge.after}"
        table.add_row(ends, f"{edge.reason}{dropped}", Text(one_line(edge.artifact or "")))
    console.print(table)
    if len(edges) < len(graph.edges):
        console.print(Text(f"{len(graph.edges) - len(edges)} more edges", style="dim"))
