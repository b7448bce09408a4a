"""`orchestrator bench simulate` and `bench machine`: predict a task on another machine, and describe this one."""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.text import Text

from orchestrator.bench.critical_path.workloads import choose, workloads
from orchestrator.bench.simulate.machine import Machine, read_machine, to_text
from orchestrator.bench.simulate.measure import describe
from orchestrator.bench.simulate.run import UNKNOWN, Advice, Simulated, advise, answer_lengths, interval_of, simulate
from orchestrator.cli.bench_path import replayed
from orchestrator.cli.complete import complete_model
from orchestrator.cli.documents import read_task
from orchestrator.cli.logs import log_to
from orchestrator.cli.registry import registry_of
from orchestrator.cli.report_view import facts
from orchestrator.cli.settings import DirOption, JsonFlag, settings
from orchestrator.cli.source import check_folder
from orchestrator.cli.terminal import one_line, print_json, print_result, printable, seconds, write
from orchestrator.errors import InputError, Problem
from orchestrator.registry.models import Registry
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.record.report import load_report
from orchestrator.task.taskir.models import TaskIR


def simulate_task(
    context: typer.Context,
    machine: Annotated[Path, typer.Option("--machine", metavar="FILE", help="What the machine has, and its speed.")],
    name: Annotated[
        str | None, typer.Argument(metavar="[WORKLOAD|TASK.json]", help="Such as wide-16, or a TaskIR file.")
    ] = None,
    replay: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Simulate the plan of a run of the journal, with answers as long as its own."),
    ] = None,
    runs: Annotated[int, typer.Option(min=1, max=1000, help="How many runs, each with other lengths of answers.")] = 1,
    seed: Annotated[int, typer.Option(help="The seed of the first run.")] = 0,
    folder: DirOption = None,
    advice: Annotated[
        bool, typer.Option("--advice/--no-advice", help="Say what bounds the task, and what to buy for it.")
    ] = True,
    as_json: JsonFlag = False,
) -> None:
    """Simulate how long a task takes on another machine.

    The real scheduler and pool run on a virtual clock, and engines choose what goes into a step as real ones do, and
    take as long for it as the machine file says. Answers have the prescribed form or a length drawn at random, and in a
    replay as many tokens as those of the run; gates and tools really run. A replay reads the run's own folder if there
    is no --dir. With more than one run, 95 % of them are within the interval.
    """
    folder = check_folder(folder)
    described = read_machine(machine)
    options = settings(context)
    if (name is None) == (replay is None):
        raise InputError(
            Problem("WORKLOAD", "is missing, or there is a run too", "a workload, a file, or --replay RUN")
        )
    shown = name or replay or ""
    lengths = UNKNOWN
    if name is not None:
        task = _task(name)
    else:
        workload = replayed(options, shown, folder)
        ((run, task),) = workload.tasks.items()
        folder = workload.folder
        with JournalReader.open_to_read(options.home) as journal:
            lengths = answer_lengths(task, load_report(journal, run))
    registry = registry_of(options)
    with tempfile.TemporaryDirectory(prefix="orchestrator-simulate-") as scratch:
        home = Path(scratch)
        log_to(home / "simulate.log")
        simulations = [
            simulate(task, described, registry, home / f"run-{seed + at}", seed + at, lengths, folder=folder)
            for at in range(runs)
        ]
        better = (
            advise(task, described, registry, home, simulations[0], seed, lengths, folder=folder) if advice else None
        )
    document = _as_json(shown, described, simulations, better)
    table = facts()
    for key, value in document.items():
        table.add_row(key.replace("_", " "), Text(_shown(key, value)))
    print_result(document, lambda console: console.print(table), as_json=as_json)


def describe_machine(
    context: typer.Context,
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]...",
            help="Models of the registry; without them, all that have a role.",
            autocompletion=complete_model,
        ),
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of machine files instead.")] = False,
) -> None:
    """Measure this machine, and print a machine file for `bench simulate`.

    For each model a few short tasks are run and its steps are measured, which takes about a minute on an idle
    machine. No daemon is asked; one that computes meanwhile changes the figures. To describe another machine, edit the
    file: --schema explains its fields.
    """
    if schema:
        print_json(Machine.model_json_schema())
        return
    registry = registry_of(settings(context))
    names = _models(registry, models or ())
    with tempfile.TemporaryDirectory(prefix="orchestrator-machine-") as folder:
        log_to(Path(folder) / "machine.log")
        description = describe(registry, names, _say)
    write(lambda: print(to_text(description), end=""))


def _models(registry: Registry, names: Sequence[str]) -> list[str]:
    # Without names: the models of the roles, else the first one that can write here.
    able = [
        name
        for name, entry in registry.models.items()
        if entry.why_not is None and not entry.embeds and not entry.is_remote
    ]
    if not names:
        roles = dict.fromkeys(entry.model for entry in registry.roles.values() if entry.model in able)
        return [*roles] or able[:1]
    model_ids = []
    for name in names:
        model_id = registry.model_named(name)
        if model_id not in able:
            raise InputError(Problem(name, f"{registry.path} has no such model that can write here", ", ".join(able)))
        model_ids.append(model_id)
    return model_ids


def _say(line: str) -> None:
    write(lambda: print(printable(one_line(line)), file=sys.stderr, flush=True))


def _task(name: str) -> TaskIR:
    if name.endswith(".json"):
        return read_task(name)
    available = {workload.name: workload for workload in workloads().values() if workload.paired}
    try:
        (selected,) = choose([name], available)
    except (KeyError, ValueError) as error:
        accepted = f"{', '.join(available)}, or the name of a TaskIR file that ends in .json"
        raise InputError(Problem(name, "is no workload of one task", accepted)) from error
    return available[selected].tasks[selected]


def _as_json(name: str, machine: Machine, simulations: list[Simulated], advice: Advice | None) -> dict[str, Any]:
    last = simulations[-1].report
    middle, low, high = interval_of([simulation.seconds for simulation in simulations])
    paths = [simulation.report.critical_path for simulation in simulations]
    return {
        "task": name,
        "machine": machine.name,
        "sources": [*machine.sources],
        "status": last.status,
        "error": last.error,
        "runs": len(simulations),
        "seconds": middle,
        "seconds_interval": [low, high],
        "critical_path_seconds": median(path.seconds for path in paths),
        "waiting_seconds": median(path.waiting_seconds for path in paths),
        "serial_seconds": median(path.serial_seconds for path in paths),
        "predicted_speedup": median(
            path.serial_seconds / simulation.seconds for path, simulation in zip(paths, simulations, strict=True)
        ),
        "bound": median(path.bound for path in paths),
        "concurrency": median(path.concurrency for path in paths),
        "engines": simulations[-1].engines,
        **({} if advice is None else _advice(advice)),
    }


def _advice(advice: Advice) -> dict[str, Any]:
    return {
        "bound_by": advice.bound_by,
        "twice_as_much": {name: round(ratio, 3) for name, ratio in advice.ratios.items()},
        "waiting_share": advice.waiting_share,
        "advice": advice.in_words(),
    }


def _shown(key: str, value: object) -> str:
    if isinstance(value, float):
        return seconds(value) if "seconds" in key else f"{value:.2f}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown('', item)}" for name, item in value.items())
    if isinstance(value, list):
        return (" to " if key.endswith("interval") else ", ").join(_shown(key, item) for item in value)
    return str(value or "-")
