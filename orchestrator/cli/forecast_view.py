"""Predict a run from its plan, and print the DAG, the reason of each edge, the waves and the critical path."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.cli import dag
from orchestrator.cli.report_view import MANY, counted, facts, format_path, heading, listed
from orchestrator.cli.terminal import Glyphs, glyphs, one_line, seconds
from orchestrator.run.planning import PlannedTask
from orchestrator.task.analysis import StepGraph
from orchestrator.task.critical_path import CriticalPath, best_seconds, critical_path, slack
from orchestrator.task.events import CHANCE, Prediction, RoleRates
from orchestrator.task.modes import Mode
from orchestrator.task.prediction import path_range, predict_plan
from orchestrator.task.taskir.models import TaskIR
from orchestrator.task.taskir.parse import dump_task


@dataclass(frozen=True, slots=True)
class Forecast:
    """What can be predicted of a task before it runs. Times are in seconds."""

    task: TaskIR
    mode: Mode
    graph: StepGraph
    predicted: Mapping[str, Prediction]
    path: CriticalPath
    path_range: tuple[float, float]  # holds the critical path with a probability of `CHANCE`
    # Lower bound for the best schedule, as far as it is known how much the engines can overlap.
    best_seconds: float
    slack: Mapping[str, float]
    goes_on_after: str | None  # the step after which more steps follow that are not known yet
    reason: str = ""  # why the request would be answered directly, or what was wrong with the plan

    @classmethod
    def of(
        cls,
        planned: PlannedTask,
        graph: StepGraph,
        rates: Mapping[str, RoleRates],
        sizes: Mapping[str, int] | None = None,
        pace: float = 1.0,
    ) -> "Forecast":
        """Return the forecast for a task from its graph, typical rates of its steps, and the bytes of its inputs.

        `pace` is how many times longer than predicted earlier runs of such plans took, as `pace_of` returns it.
        """
        task, mode, after = planned.task, planned.mode, planned.goes_on_after
        predicted = predict_plan(graph, rates, sizes, mode, pace)
        seconds = {name: prediction.seconds for name, prediction in predicted.items()}
        path = critical_path(graph.before, graph.order, seconds)
        reach = path_range(graph.before, graph.order, predicted)
        efforts = {name: prediction.effort for name, prediction in predicted.items()}
        best = best_seconds(graph.before, graph.order, efforts)
        spare = slack(graph.before, graph.order, seconds)
        return cls(task, mode, graph, predicted, path, reach, best, spare, after, planned.reason)

    @property
    def has_data(self) -> bool:
        """False if no step is predicted from generations measured here: all times are assumed."""
        return any(prediction.generations for prediction in self.predicted.values())

    @property
    def serial_seconds(self) -> float:
        return sum(prediction.effort.alone for prediction in self.predicted.values())

    @property
    def bound(self) -> float:
        """How many times faster than one by one the best schedule should be; 0 without steps."""
        return self.serial_seconds / self.best_seconds if self.best_seconds > 0 else 0.0

    @property
    def speedup(self) -> float:
        """How many times faster than one by one the run should be; 0 without steps."""
        # The critical path alone may seem faster than the best schedule: it leaves out what other steps take of the
        # engines, and the pace may have been learned on a less busy machine.
        return self.serial_seconds / self.run_seconds if self.run_seconds > 0 else 0.0

    @property
    def run_seconds(self) -> float:
        return max(self.path.seconds, self.best_seconds)

    def to_json(self) -> dict[str, Any]:
        """Return the forecast with the keys of a run's report, as far as they apply."""
        steps = [
            {
                "id": step.id,
                "role": step.actor,
                "persona": step.persona,
                "state": "planned",
                "depends_on": list(self.graph.before[step.id]),
                "slack": self.slack[step.id],
                "predicted_seconds": self.predicted[step.id].seconds,
                "predicted_range": list(self.predicted[step.id].range),
                "predicted_from": asdict(self.predicted[step.id]),
                "action": step.action,
            }
            for step in self.task.plan.steps
        ]
        return {
            "dry_run": True,
            "mode": self.mode,
            "reason": self.reason,
            "steps": steps,
            "goes_on_after": self.goes_on_after,
            "has_data": self.has_data,
            "edges": [asdict(edge) for edge in self.graph.edges],
            "waves": [list(wave) for wave in self.graph.waves],
            "width": self.graph.width,
            "critical_path": {
                "steps": list(self.path.steps),
                "predicted_seconds": self.path.seconds,
                "predicted_range": list(self.path_range),
                "serial_seconds": self.serial_seconds,
                "best_seconds": self.best_seconds,
                "bound": self.bound,
                "predicted_speedup": self.speedup,
            },
            "task": dump_task(self.task),
        }


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
        more = f"The plan goes on after {forecast.goes_on_after}, when its output is known; more steps may follow."
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
    pictures = dag.draw(graph.order, graph.before, marks, signs) if shown == graph.order else None
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
