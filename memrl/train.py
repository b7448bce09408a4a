"""The command `memory train`: have tasks done from which the router learns."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from orchestrator.bench.families import STEP_FAMILIES
from orchestrator.cli.daemon import answers
from orchestrator.cli.logs import log_to
from orchestrator.cli.registry import registry_of
from orchestrator.cli.settings import JsonFlag, Settings, settings
from orchestrator.cli.terminal import make_console, plain_table, print_json, write
from orchestrator.errors import InputError, Problem
from orchestrator.memrl.rollouts import Point, RolloutTask, family_tasks, folder_tasks, train, write_page
from orchestrator.run.journal.home import Home
from orchestrator.service.configuration import EVERY_TYPE, load_configuration


def train_router(
    context: typer.Context,
    tasks: Annotated[int, typer.Option("--tasks", min=1, max=1_000_000, help="How many tasks to have done.")] = 100,
    family: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"A task family; repeatable: {', '.join(STEP_FAMILIES)}. Default: all."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Tasks of one's own instead: NAME.json next to NAME.checks.json, repeated."),
    ] = None,
    explore: Annotated[
        float, typer.Option(min=0, max=1, help="The share of choices in which something else is tried at first.")
    ] = 0.3,
    width: Annotated[int, typer.Option(min=1, max=256, help="How many tasks run at a time.")] = 8,
    seed: Annotated[int, typer.Option(help="Other tasks of the same families.")] = 0,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page of charts, which works offline.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Have tasks done whose answers can be checked, and learn from them which choices are best.

    The models stay as they are. Tasks run as batch runs in the state folder, which no daemon may own meanwhile.
    The same command continues a training that was interrupted.
    """
    options = settings(context)
    if answers(options.home):
        conflict = f"a daemon owns {options.home}"
        raise InputError(Problem("memory train", conflict, "another --home, or no daemon during the training"))
    rollout_tasks = _tasks(tasks, seed, family, folder)
    if out is not None and (out.is_dir() or not out.absolute().parent.is_dir()):
        raise InputError(Problem(f"--out {out}", "cannot be written there", "a file in a folder that exists"))
    log_to(Home(options.home).logs / "orchestrator.log")
    try:
        points = asyncio.run(_train(options, rollout_tasks, width, explore))
    except KeyboardInterrupt:
        print("interrupted; the same command continues this training", file=sys.stderr)
        raise
    if out is not None:
        try:
            write_page(out, points)
        except OSError as error:
            print(f"the page {out} cannot be written: {error.strerror}", file=sys.stderr)
    if as_json:
        print_json({"tasks": len(rollout_tasks), "points": [asdict(point) for point in points]})
        return
    write(lambda: make_console(sys.stdout).print(_points_table(points)))


def _tasks(count: int, seed: int, families: Sequence[str] | None, folder: Path | None) -> list[RolloutTask]:
    if folder is None:
        return list(family_tasks(count, seed, tuple(families or STEP_FAMILIES)))
    if families:
        raise InputError(Problem("--family", "is given beside --folder", "one of them"))
    templates = folder_tasks(folder)
    # The folder's tasks repeat, with new numbers, until there are enough.
    return [templates[number % len(templates)].numbered(number // len(templates), seed) for number in range(count)]


async def _train(options: Settings, tasks: Sequence[RolloutTask], width: int, explore: float) -> list[Point]:
    configuration = load_configuration()
    memory = configuration.memory.model_copy(update={"use": "on", "explore": {EVERY_TYPE: explore}})
    runs = configuration.runs.model_copy(update={"max_running": width, "reserved": 0})
    changed = configuration.model_copy(update={"memory": memory, "runs": runs})
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=make_console(sys.stderr), disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task("tasks", total=len(tasks))
        async with options.root.attached().service(options.home, registry_of(options), changed) as service:
            return await train(service, tasks, width, lambda finished, total: progress.update(bar, completed=finished))


def _points_table(points: Sequence[Point]) -> Table:
    table = plain_table("Tasks", "Success", "Q", "Regret", "λ", "Width", "Followed")
    for point in points:
        table.add_row(
            str(point.tasks),
            f"{point.success:.2f}",
            f"{point.q:.3f}",
            f"{point.regret:.3f}",
            f"{point.stage:.3f}",
            f"{point.width:.1f}",
            f"{point.followed:.0%}",
        )
    return table
