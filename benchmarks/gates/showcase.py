"""Show each kind of recovery in the report of one run, made of tasks in which recoveries happened before."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.gates.recoveries import RECOVERIES
from benchmarks.gates.rows import TaskResult
from benchmarks.gates.setups import MODELS, GateSetup
from benchmarks.gates.tasks import BenchTask
from orchestrator.engine.contract import Message
from orchestrator.run.job import Job
from orchestrator.run.orchestrator import Orchestrator
from orchestrator.run.record.report import Report, load_report
from orchestrator.task.taskir.models import TaskIR
from orchestrator.task.taskir.parse import dump_task, task_from

TRIES = 5  # how many runs are tried at most: whether a deadline is met varies from run to run


@dataclass(frozen=True, slots=True)
class Shown:
    """A run, its tasks by step id, and its report as `orchestrator show` prints it."""

    tasks: Mapping[str, str]
    document: TaskIR
    report: Report
    text: str

    @property
    def recoveries(self) -> dict[str, list[str]]:
        """Return the ids of the steps in which each kind of recovery happened."""
        attempts = {step.id: step.attempts for step in self.report.steps}
        return {
            name: [step for step, tried in attempts.items() if matches(tried)] for name, matches in RECOVERIES.items()
        }

    def to_json(self) -> dict[str, Any]:
        """Return the entry for the file of results."""
        return {
            "tasks": dict(self.tasks),
            "recoveries": self.recoveries,
            "document": dump_task(self.document),
            "report": self.report.to_json(),
        }


def candidates(results: Sequence[TaskResult]) -> list[list[str]]:
    """Return for each kind of recovery the tasks in which it happened, code and shell first; then tasks without."""
    recovered = [[result for result in results if matches(result.attempts)] for matches in RECOVERIES.values()]
    plain = [result for result in results if result.family == "shell" and len(result.attempts) == 1]
    acting = ("code", "shell")
    return [
        [result.task for result in sorted(some, key=lambda result: result.family not in acting)]
        for some in (*recovered, plain)
    ]


def chosen(groups: Sequence[Sequence[str]], number: int) -> list[str]:
    """Return the tasks of try `number`: the next one of each kind, none twice."""
    picked: list[str] = []
    for some in groups:
        left = [task for task in some if task not in picked]
        picked += left[number % len(left) :][:1] if left else []
    return picked


def joined(tasks: Sequence[BenchTask], deadline: float) -> TaskIR:
    """Return one document of several tasks, a step each. Names of outputs and labels that repeat get a number."""
    steps, inputs = list[dict[str, Any]](), dict[str, Mapping[str, str]]()
    taken: set[str] = set()
    for number, task in enumerate(tasks, start=1):
        step = dump_task(task.task(gates=True, deadline=deadline))["plan"]["steps"][0]
        labels = {source["label"]: _free(source["label"], taken) for source in task.inputs}
        inputs |= {labels[source["label"]]: {**source, "label": labels[source["label"]]} for source in task.inputs}
        reads = {"inputs": [labels[name] for name in step["inputs"]]} if "inputs" in step else {}
        steps.append({**step, **reads, "id": f"S{number}", "outputs": [_free(step["outputs"][0], taken)]})
    return task_from({"objective": "Stories", "inputs": [*inputs.values()], "plan": {"steps": steps}})


async def show(
    setup: GateSetup,
    folder: Path,
    tasks: Mapping[str, BenchTask],
    results: Sequence[TaskResult],
    deadline: float,
    *,
    tries: int = TRIES,
) -> Shown | None:
    """Run tasks with recoveries as one run, up to `tries` times until one report has each kind; return the last run.

    Returns None if there are no such tasks.
    """
    groups, shown = candidates(results), None
    if not any(groups):
        return None
    async with Orchestrator.open(folder / "showcase", setup.registry(folder)) as orchestrator:
        await asyncio.gather(*(orchestrator.pool.count(model, (Message("user", "?"),)) for model in MODELS))
        for number in range(tries):
            names = chosen(groups, number)
            document = joined([tasks[name] for name in names], deadline)
            run = await orchestrator.submit(Job(None, document, None, "as-planned"))
            async for _ in orchestrator.watch(run):
                pass
            report = await asyncio.to_thread(load_report, orchestrator.journal, run)
            steps = {f"S{place}": name for place, name in enumerate(names, start=1)}
            shown = Shown(steps, document, report, text="")
            if all(shown.recoveries.values()):
                break
    assert shown is not None, "there is at least one try"
    return replace(shown, text=await asyncio.to_thread(_printed, folder, shown.report.run_id))


def _printed(folder: Path, run: str) -> str:
    """Return the report of a run as `orchestrator show` prints it."""
    command = [str(Path(sys.executable).with_name("orchestrator")), "show", run]
    environment = {**os.environ, "ORCHESTRATOR_HOME": str(folder / "showcase"), "COLUMNS": "100"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout  # noqa: S603


def _free(name: str, taken: set[str]) -> str:
    """Return the name, with a number before its suffix if it is in `taken`, and add it there."""
    stem, dot, ending = name.rpartition(".") if "." in name else (name, "", "")
    free = name
    for number in range(2, len(taken) + 3):
        if free not in taken:
            break
        free = f"{stem}-{number}{dot}{ending}"
    taken.add(free)
    return free
