"""Show every story in the report of one run: a task of code and shell steps, of which some told one before."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gates.rows import Result
from benchmarks.gates.stories import STORIES
from benchmarks.gates.tasks import BenchTask
from benchmarks.gates.world import MODELS, World
from orchestrator.engine.contract import Message
from orchestrator.history import Report, load_report
from orchestrator.runs import Job, Orchestrator
from orchestrator.taskir import TaskIR, dump_task, task_from

TRIES = 5
"""Runs at most: a deadline is not met or missed every time, however the task is chosen."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One run with its tasks by step, and its report as `orchestrator show` prints it."""

    tasks: Mapping[str, str]
    document: TaskIR
    report: Report
    text: str

    @property
    def stories(self) -> dict[str, list[str]]:
        """The steps that tell each story."""
        attempts = {step.id: step.attempts for step in self.report.steps}
        return {name: [step for step, tried in attempts.items() if tells(tried)] for name, tells in STORIES.items()}

    def to_json(self) -> dict[str, Any]:
        """Return what the results tell of it."""
        return {
            "tasks": dict(self.tasks),
            "stories": self.stories,
            "document": dump_task(self.document),
            "report": self.report.to_json(),
        }


def candidates(results: Sequence[Result]) -> list[list[str]]:
    """Return for each story the tasks that told it, code and shell first; then shell tasks that told none."""
    told = [[one for one in results if tells(one.attempts)] for tells in STORIES.values()]
    plain = [one for one in results if one.family == "shell" and len(one.attempts) == 1]
    acting = ("code", "shell")
    return [[one.task for one in sorted(some, key=lambda one: one.family not in acting)] for some in (*told, plain)]


def chosen(found: Sequence[Sequence[str]], number: int) -> list[str]:
    """Return the tasks of a try: the next one of each kind, none twice."""
    picked: list[str] = []
    for some in found:
        left = [task for task in some if task not in picked]
        picked += left[number % len(left) :][:1] if left else []
    return picked


def joined(tasks: Sequence[BenchTask], deadline: float) -> TaskIR:
    """Return one document of several tasks, a step each. Outputs and labels that are there already get a number."""
    steps, inputs = list[dict[str, Any]](), dict[str, Mapping[str, str]]()
    taken: set[str] = set()
    for number, task in enumerate(tasks, start=1):
        step = dump_task(task.task(gates=True, deadline=deadline))["plan"]["steps"][0]
        labels = {one["label"]: _free(one["label"], taken) for one in task.inputs}
        inputs |= {labels[one["label"]]: {**one, "label": labels[one["label"]]} for one in task.inputs}
        reads = {"inputs": [labels[name] for name in step["inputs"]]} if "inputs" in step else {}
        steps.append({**step, **reads, "id": f"S{number}", "outputs": [_free(step["outputs"][0], taken)]})
    return task_from({"objective": "Stories", "inputs": [*inputs.values()], "plan": {"steps": steps}})


async def show(
    world: World, folder: Path, tasks: Mapping[str, BenchTask], results: Sequence[Result], deadline: float
) -> Shown | None:
    """Run tasks that told stories as one, until one report tells every story or the tries are over; return the last.

    None where no task told any.
    """
    found, shown = candidates(results), None
    async with Orchestrator.open(folder / "showcase", world.registry(folder)) as orchestrator:
        await asyncio.gather(*(orchestrator.pool.count(model, (Message("user", "?"),)) for model in MODELS))
        for number in range(TRIES):
            names = chosen(found, number)
            if not names:
                break
            document = joined([tasks[name] for name in names], deadline)
            run = await orchestrator.submit(Job(None, document, None, "as-planned"))
            async for _ in orchestrator.watch(run):
                pass
            report = await asyncio.to_thread(load_report, orchestrator.journal, run)
            steps = {f"S{place}": name for place, name in enumerate(names, start=1)}
            shown = Shown(steps, document, report, await asyncio.to_thread(_printed, folder, run))
            if all(shown.stories.values()):
                break
    return shown


def _printed(folder: Path, run: str) -> str:
    """Return the report as users see it."""
    command = [str(Path(sys.executable).with_name("orchestrator")), "show", run]
    environment = {**os.environ, "ORCHESTRATOR_HOME": str(folder / "showcase"), "COLUMNS": "100"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout  # noqa: S603


def _free(name: str, taken: set[str]) -> str:
    """Return a name that is not taken, and take it: the name itself, or with a number before its ending."""
    stem, dot, ending = name.rpartition(".") if "." in name else (name, "", "")
    free = name
    for number in range(2, len(taken) + 3):
        if free not in taken:
            break
        free = f"{stem}-{number}{dot}{ending}"
    taken.add(free)
    return free
