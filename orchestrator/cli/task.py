"""The commands about tasks that run nothing: plan, validate, schema; and the dry run of `run`."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from orchestrator.cli.documents import read_request_or_task, task_in
from orchestrator.cli.forecast_view import print_forecast
from orchestrator.cli.foreground import Foreground, RunClient
from orchestrator.cli.live import RunDisplay
from orchestrator.cli.report_view import format_gates, listed
from orchestrator.cli.settings import DirOption, JsonFlag, Settings, settings
from orchestrator.cli.source import Document, check_folder, problems_in, read_document
from orchestrator.cli.terminal import counted, glyphs, print_json, print_notes, print_result
from orchestrator.errors import InputError, Problem
from orchestrator.run.gates.planned import PlannedGate
from orchestrator.run.job import Job
from orchestrator.task.taskir.models import TaskIR
from orchestrator.task.taskir.parse import dump_task, json_schema

# What --json of a dry run has of a forecast, next to its report.
FORECAST_KEYS: Final = (
    *("task", "mode", "reason", "goes_on_after", "warnings", "has_data", "run_seconds", "range_seconds"),
    *("direct_seconds", "direct_has_data", "prompt_tokens", "output_tokens"),
    *("bytes_to_load", "memory_bytes", "memory_budget"),
)

TaskArgument = Annotated[str, typer.Argument(metavar="FILE", help="A TaskIR document, or - for stdin.")]


def plan(
    context: typer.Context,
    request: Annotated[str, typer.Argument(metavar="TEXT", help="A request, a file that holds one, or - for stdin.")],
    folder: DirOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The plan is JSON anyway: this makes errors JSON too.")
    ] = False,
) -> None:
    """Print the plan of a request.

    The frontdoor makes it; it is a TaskIR document that `run` accepts.
    """
    options = settings(context)
    source = read_request_or_task(request)
    if isinstance(source, TaskIR):
        raise InputError(
            Problem(request, "is a TaskIR document, which has a plan already", "a request in plain language")
        )
    job = Job(request=source, task=None, directory=check_folder(folder), mode="as-planned")
    planned = asyncio.run(Foreground(options, RunDisplay()).ask(lambda client: client.plan(job)))
    print_json(dump_task(planned.task))


def validate(context: typer.Context, task: TaskArgument, folder: DirOption = None, as_json: JsonFlag = False) -> None:
    """Check a TaskIR document.

    It has to be one, and this installation has to be able to run it. Exits with 2 if not.
    """
    document = read_document(task)
    job = Job(None, task_in(document), check_folder(folder), "as-planned")
    forecast = _forecast(settings(context), document, job, as_json=as_json)
    steps, waves, width = (forecast["report"][name] for name in ("steps", "waves", "width"))
    # By step and gate: null for a gate that checks the step, else why it does not.
    gates = {step["id"]: {gate["gate"]: gate["idle"] or None for gate in step["gates"]} for step in steps}
    summary = {"valid": True, "steps": len(steps), "waves": waves, "width": width, "gates": gates}
    size = f"{counted(len(steps), 'step')} in {counted(len(waves), 'wave')}, width {width}"
    body = {**summary, "warnings": forecast["warnings"]}
    print_result(body, lambda console: _print_valid(console, size, steps), as_json=as_json)


def _print_valid(console: Console, size: str, steps: Sequence[Mapping[str, Any]]) -> None:
    console.print(Text(f"{glyphs(console).states['done']} valid: {size}"))
    alike: dict[str, list[str]] = {}  # steps by their gates
    for step in steps:
        if plans := [PlannedGate(**gate) for gate in step["gates"]]:
            alike.setdefault(format_gates(plans), []).append(step["id"])
    for gates, names in alike.items():
        console.print(Text(f"gates of {listed(names)}: {gates}", style="dim"))


def schema() -> None:
    """Print the JSON Schema of TaskIR."""
    print_json(json_schema())


def dry_run(options: Settings, source: str | Document, job: Job, *, full: bool, as_json: bool) -> None:
    """Print the forecast of the job of a source. A request is planned first, but no step runs."""
    forecast = _forecast(options, source, job, as_json=as_json)
    body = {"dry_run": True, **{name: forecast[name] for name in FORECAST_KEYS}, **forecast["report"]}
    print_result(body, lambda console: print_forecast(console, forecast, full=full), as_json=as_json)


def _forecast(options: Settings, source: str | Document, job: Job, *, as_json: bool) -> dict[str, Any]:
    # Unless all is printed `as_json`, what the job names that is not here, and can do without, is printed on stderr.
    async def ask(client: RunClient) -> dict[str, Any]:
        with problems_in(source):
            return await client.forecast(job)

    forecast = asyncio.run(Foreground(options, RunDisplay()).ask(ask))
    if not as_json:
        print_notes("warning", forecast["warnings"])
    return forecast
