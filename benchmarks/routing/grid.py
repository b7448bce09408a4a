"""Try every action once at each task of the embedded models' families, so that routers can be compared offline.

A task is one that `memory train` would have done, its prompt that of the production harness. The engine computes 16 of
them at a time and answers greedily. Answers do not depend on what else is in the batch, so the grid is the same every
time; only its seconds are of the machine that it was made on.
"""

import asyncio
import csv
import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.routing.outcomes import DataError
from benchmarks.routing.rows import BenchmarkPart, Row, RowLog
from benchmarks.tiny.sizes import CONTEXT
from orchestrator.bench.families.example import SYSTEM_PROMPTS, persona_texts
from orchestrator.engine.client.engine import Engine
from orchestrator.engine.contract import EngineSpec, Generation
from orchestrator.memrl.episodes import Action, Situation, situation_of
from orchestrator.memrl.rollouts import MAX_TOKENS, RolloutTask, family_tasks
from orchestrator.run.steps.role import StepInput, step_messages
from orchestrator.task import lexical
from orchestrator.task.taskir.models import TaskIR

WEIGHTS: Final = Path(__file__).parents[2] / "registry" / "tiny"
KEPT: Final = Path(__file__).with_name("grid.csv")  # the grid that is published, which needs no engine to be read
MODELS: Final = ("small", "medium", "large")
PERSONAS: Final = ("", "terse")  # no persona, and one that fits code only
OPTIONS: Final = tuple(product(MODELS, PERSONAS))  # what is tried at each task: a model with a persona
TASKS: Final = 600
SEED: Final = 32
SLOTS: Final = 16
AT_A_TIME: Final = 120
COLUMNS: Final = ("task", "model", "persona", "right", "tokens", "seconds")

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Grid:
    """Tasks, and what came of every option at each of them. Arrays have the shape (tasks, options)."""

    digest: str  # a hash of the file
    families: tuple[str, ...]
    situations: tuple[Situation, ...]
    vectors: NDArray[np.float32]
    right: Floats  # 1 for a right answer, 0 for a wrong one or one that came to no end
    tokens: Floats  # tokens read and written
    seconds: Floats  # how long the answer takes if the engine computes nothing else, by the engine's step costs

    def actions(self, task: int) -> tuple[Action, ...]:
        """Return the actions that the options stand for at a task, whose role stays the one that is asked for."""
        role = self.situations[task].role
        return tuple(Action(role, persona, f"tiny-{model}") for model, persona in OPTIONS)


def read_grid(file: Path = KEPT) -> Grid:
    """Return a grid that was written. Raises DataError if it is missing or not a grid."""
    try:
        data = file.read_bytes()
        rows = list(csv.DictReader(io.StringIO(data.decode("utf-8"), newline="")))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: {error}; the part grid makes it") from error
    if not rows or tuple(rows[0]) != COLUMNS or len(rows) % len(OPTIONS):
        raise DataError(f"{file} is no grid; accepted: rows of {', '.join(COLUMNS)}, {len(OPTIONS)} for each task")
    count = len(rows) // len(OPTIONS)
    tasks = list(family_tasks(count, SEED))
    wanted = [(task.name, *option) for task in tasks for option in OPTIONS]
    if [(row["task"], row["model"], row["persona"]) for row in rows] != wanted:
        raise DataError(f"{file} is a grid of other tasks; accepted: one made anew by the part grid")
    situations = tuple(situation_of_task(task.task) for task in tasks)
    numbers = np.array([[float(row[name]) for name in COLUMNS[3:]] for row in rows]).reshape(count, len(OPTIONS), 3)
    return Grid(
        digest=hashlib.sha256(data).hexdigest()[:16],
        families=tuple(task.name.split("-")[0] for task in tasks),
        situations=situations,
        vectors=lexical.embed([situation.text for situation in situations], lexical.LEARNING_DIMENSIONS),
        right=numbers[:, :, 0],
        tokens=numbers[:, :, 1],
        seconds=numbers[:, :, 2],
    )


def situation_of_task(task: TaskIR) -> Situation:
    """Return the situation in which the router chooses for the task's only step."""
    step = task.plan.steps[0]
    return situation_of(
        role=step.actor,
        objective=task.objective,
        task=task,
        step=step,
        input_bytes=sum(len(source.value.encode()) for source in task.inputs),
    )


def run(rows: RowLog) -> BenchmarkPart:
    """Make the grid that is published, and return the success, tokens and seconds of each option by family."""
    make_grid(rows)
    grid = read_grid()
    families, table = np.array(grid.families), list[Row]()
    for family in dict.fromkeys(grid.families):
        own = families == family
        for place, (model, persona) in enumerate(OPTIONS):
            row: Row = {"family": family, "tasks": int(own.sum()), "model": model, "persona": persona}
            row["success"] = round(float(grid.right[own, place].mean()), 4)
            row["tokens"] = round(float(grid.tokens[own, place].mean()), 1)
            table.append(row | {"seconds": round(float(grid.seconds[own, place].mean()), 4)})
    return BenchmarkPart(table, [])


def make_grid(rows: RowLog, out: Path = KEPT, count: int = TASKS) -> None:
    """Have the engines answer all prompts, those that are in the log excepted, and write the grid. Raises OSError."""
    tasks = list(family_tasks(count, SEED))
    numbers_by_option: dict[tuple[str, str, str], list[Any]] = {}
    for model in MODELS:
        for start in range(0, count, AT_A_TIME):
            some = tasks[start : start + AT_A_TIME]
            key = ("grid", model, str(SEED), str(start), str(len(some)))
            made = rows.get(key, partial(_made, model, some), *_sources())
            for name, persona, *numbers in made["answers"]:
                numbers_by_option[name, model, persona] = numbers
    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for task in tasks:
            for model, persona in OPTIONS:
                writer.writerow((task.name, model, persona, *numbers_by_option[task.name, model, persona]))


def _made(model: str, tasks: Sequence[RolloutTask]) -> dict[str, Any]:
    return {"answers": asyncio.run(_answers(model, tasks))}


async def _answers(model: str, tasks: Sequence[RolloutTask]) -> list[tuple[Any, ...]]:
    """Return what a model makes of tasks with each persona: task, persona, and the numbers of the grid."""
    spec = EngineSpec(
        file=str(WEIGHTS / f"{model}.gguf"), context=CONTEXT, slots=SLOTS, threads=1, batch_invariant=True
    )
    async with await Engine.start(spec) as engine, asyncio.TaskGroup() as group:
        running = [group.create_task(_answer(engine, task, persona)) for task in tasks for persona in PERSONAS]
    return [answer.result() for answer in running]


async def _answer(engine: Engine, task: RolloutTask, persona: str) -> tuple[Any, ...]:
    step = task.task.plan.steps[0]
    texts_by_label = {source.label: source.value for source in task.task.inputs}
    inputs = [StepInput(name, texts_by_label[name]) for name in step.inputs]
    messages = step_messages(SYSTEM_PROMPTS[step.actor], persona_texts()[persona], inputs, step.action)
    completion = await engine.generate(Generation(messages=messages, schema=step.output_schema, max_tokens=MAX_TOKENS))
    right = completion.finish == "stop" and task.check({"answer": completion.text}) >= 0.5
    usage = completion.usage
    seconds = usage.alone_seconds or usage.work_seconds
    return task.name, persona, int(right), usage.prompt_tokens + usage.output_tokens, round(seconds, 4)


def _sources() -> list[Path]:
    """Return the files, other than the weights, that the answers depend on."""
    return [Path(__file__).parents[1] / "rollouts.py"]
