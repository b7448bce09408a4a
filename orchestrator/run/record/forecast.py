"""Predict a run from its plan: how long its steps take, its critical path, and what the best schedule would need."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.run.gates.planned import gates_for_step
from orchestrator.run.planning import PlannedTask
from orchestrator.task.analysis import StepGraph
from orchestrator.task.critical_path import CriticalPath, best_seconds, critical_path, slack
from orchestrator.task.events import Prediction, RoleRates
from orchestrator.task.modes import Mode
from orchestrator.task.prediction import path_range, predict_plan
from orchestrator.task.taskir.models import TaskIR


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

    @property
    def run_range(self) -> tuple[float, float]:
        """The range of `run_seconds`: that of the critical path, by as much longer as the run takes longer than it."""
        longer = self.run_seconds / self.path.seconds if self.path.seconds > 0 else 1.0
        low, high = self.path_range
        return min(low * longer, self.run_seconds), max(high * longer, self.run_seconds)

    def to_json(self) -> dict[str, Any]:
        """Return the plan and its times with the keys of a run's report, as far as they apply."""
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
                "gates": [asdict(gate) for gate in gates_for_step(step, self.task)],
            }
            for step in self.task.plan.steps
        ]
        return {
            "steps": steps,
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
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class JobForecast:
    """What can be predicted of a job. Times are in seconds."""

    forecast: Forecast
    warnings: tuple[str, ...]  # what the job names that is not here, and can do without
    models: Mapping[str, str]  # the registry's model of each role; a router may choose another
    bytes_to_load: Mapping[str, int]  # of the memory budget, by model; 0 for one that is loaded
    memory_bytes: int  # of its models together, weights and KV cache, loaded or not
    memory_budget: int  # bytes that all loaded models may take
    direct: Prediction | None  # of answering the request in one step; None if that is the plan, or impossible
