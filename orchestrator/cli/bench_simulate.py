"""`orchestrator bench simulate`: how a task would go on another machine."""

import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.text import Text

from benchmarks.critical_path.workloads import choose, workloads
from benchmarks.simulate.machine import Machine, read_machine
from benchmarks.simulate.run import Simulated, simulate
from orchestrator.cli.logs import log_to
from orchestrator.cli.report_view import facts
from orchestrator.cli.settings import JsonFlag, settings
from orchestrator.cli.source import read_task
from orchestrator.cli.terminal import make_console, print_json, seconds, write
from orchestrator.errors import InputError, Problem
from orchestrator.taskir import TaskIR
from registry.models import Registry


def simulate_task(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="WORKLOAD|TASK.json", help="Such as wide-16, or a TaskIR file.")],
    machine: Annotated[Path, typer.Option("--machine", metavar="FILE", help="What the machine has, and its speed.")],
    runs: Annotated[int, typer.Option(min=1, max=1000, help="How many runs, each with other lengths of answers.")] = 1,
    seed: Annotated[int, typer.Option(help="The seed of the first run.")] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Simulate how long a task takes on another machine.

    The real scheduler and pool run on a virtual clock, and engines take as long for each step as the machine file says.
    Answers have the prescribed form or a length drawn at random; gates and tools really run, in no virtual time.
    """
    described = read_machine(machine)
    task = _task(name)
    registry = settings(context).registry()
    with tempfile.TemporaryDirectory(prefix="orchestrator-simulate-") as folder:
        log_to(Path(folder) / "simulate.log")
        found = [_run(task, described, registry, Path(folder), seed + at) for at in range(runs)]
    told = _as_json(name, described, found)
    if as_json:
        print_json(told)
        return
    table = facts()
    for key, value in told.items():
        table.add_row(key.replace("_", " "), Text(_shown(key, value)))
    write(lambda: make_console(sys.stdout).print(table))


def _run(task: TaskIR, machine: Machine, registry: Registry, folder: Path, seed: int) -> Simulated:
    return simulate(task, machine, registry, folder / f"run-{seed}", seed)


def _task(name: str) -> TaskIR:
    """Return the task of a workload or a file. Raises InputError."""
    if name.endswith(".json"):
        return read_task(name)
    known = {one.name: one for one in workloads().values() if one.paired}
    try:
        (meant,) = choose([name], known)
    except (KeyError, ValueError) as error:
        accepted = f"{', '.join(known)}, or the name of a TaskIR file that ends in .json"
        raise InputError(Problem(name, "is no workload of one task", accepted)) from error
    return known[meant].tasks[meant]


def _as_json(name: str, machine: Machine, found: list[Simulated]) -> dict[str, Any]:
    last = found[-1].report
    times = sorted(one.seconds for one in found)
    paths = [one.report.critical_path for one in found]
    return {
        "task": name,
        "machine": machine.name,
        "sources": [*machine.sources],
        "status": last.status,
        "error": last.error,
        "runs": len(found),
        "seconds": median(times),
        "seconds_least": times[0],
        "seconds_most": times[-1],
        "critical_path_seconds": median(path.seconds for path in paths),
        "waiting_seconds": median(path.waiting_seconds for path in paths),
        "serial_seconds": median(path.serial_seconds for path in paths),
        "predicted_speedup": median(path.serial_seconds / one.seconds for path, one in zip(paths, found, strict=True)),
        "bound": median(path.bound for path in paths),
        "concurrency": median(path.concurrency for path in paths),
        "engines": found[-1].engines,
    }


def _shown(key: str, value: object) -> str:
    if isinstance(value, float):
        return seconds(value) if "seconds" in key else f"{value:.2f}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value or "-")
