"""The `bench` commands: measure what a model can do, and how long tasks take."""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.bench import environment
from orchestrator.bench.real.contexts import context_tasks
from orchestrator.bench.real.measure import ModelResults, as_measured, goals, measure, summary
from orchestrator.bench.real.requests import Which, real_requests
from orchestrator.bench.real.tasks import real_tasks
from orchestrator.cli import bench_path, bench_simulate
from orchestrator.cli.complete import complete_model
from orchestrator.cli.get import downloads
from orchestrator.cli.logs import log_to
from orchestrator.cli.registry import registry_of
from orchestrator.cli.settings import JsonFlag, settings
from orchestrator.cli.terminal import one_line, print_lines, printable, write
from orchestrator.errors import InputError, Problem
from orchestrator.registry.measured import FILE, model_file, write_measured
from orchestrator.registry.models import ModelEntry, Registry

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    help="Measure what a model can do, and how long tasks take.",
    no_args_is_help=True,
    subcommand_metavar="COMMAND [ARGS]...",
)


@app.callback()
def bench() -> None:
    """Measure what a model can do, and how long tasks take."""


@app.command("model")
def model(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A model of the registry.", autocompletion=complete_model)
    ],
    requests: Annotated[
        Which | None, typer.Option(help="Have these requests planned; all of them, if nothing is chosen.")
    ] = None,
    tasks: Annotated[bool, typer.Option("--tasks", help="Have the tasks done, also if requests are chosen.")] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Ask only the first N requests and the first N tasks.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Measure a model: which of 100 natural requests it plans correctly, which of 40 tasks it does correctly, and
    what its steps should read.

    Plans come from the real frontdoor, and answers pass the real gates. A plan is right if its steps read the right
    files and depend on each other in the right way. Nothing is journaled, and no daemon is asked. The shares that are
    right are kept in the folder for models, where `orchestrator init` finds them when it gives models their roles.
    """
    registry = registry_of(settings(context))
    entry = _entry(registry, name)
    request_suite = real_requests(requests or "all") if requests or not tasks else ()
    task_suite = real_tasks() if tasks or not requests else ()
    parts = context_tasks() if task_suite and limit is None else ()
    with tempfile.TemporaryDirectory(prefix="orchestrator-bench-") as folder:
        log_to(Path(folder) / "bench.log")
        measured = asyncio.run(
            measure(registry, entry.id, request_suite[:limit], (*task_suite[:limit], *parts), Path(folder), _say)
        )
    _keep(entry, measured)
    print_lines(_document(measured), summary(measured), as_json=as_json)


app.command("critical-path")(bench_path.critical_path)
app.command("compare")(bench_path.compare)
app.command("history")(bench_path.history)
app.command("simulate")(bench_simulate.simulate_task)
app.command("machine")(bench_simulate.describe_machine)


def _entry(registry: Registry, name: str) -> ModelEntry:
    model_id = registry.model_named(name)
    if model_id is None:
        raise InputError(Problem(name, f"{registry.path} has no such model", ", ".join(registry.models)))
    entry = registry.models[model_id]
    if entry.unavailable is not None or entry.embeds:
        raise InputError(Problem(name, entry.unavailable or "it makes vectors and writes no text", "another model"))
    return entry


def _keep(entry: ModelEntry, measured: ModelResults) -> None:
    # `as_measured` returns None unless all requests and tasks were measured.
    shares = as_measured(measured)
    if shares is None or entry.header is None or entry.file is None:
        return
    folder = downloads()
    try:
        write_measured(folder, model_file(entry.file, entry.header.file_bytes), shares)
    except OSError as error:
        _say(f"warning: {folder} cannot be written to, so `orchestrator init` will not know of this: {error.strerror}")
        return
    _say(f"kept in {folder / FILE}, by which `orchestrator init` gives roles")


def _document(measured: ModelResults) -> dict[str, object]:
    command = f"orchestrator bench model {measured.model} --json"
    versions = environment.versions("llama-cpp-python")
    document = {"command": command, "machine": environment.machine(), "versions": versions, **measured.to_json()}
    return document | {"goals": goals(measured.results)}


def _say(line: str) -> None:
    write(lambda: print(printable(one_line(line)), file=sys.stderr, flush=True))
