"""The commands about tasks that run nothing: plan, validate, schema; and the dry run of `run`."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from orchestrator.cli.documents import read_request_or_task, task_in
from orchestrator.cli.forecast_view import print_forecast
from orchestrator.cli.foreground import Foreground, RunClient
from orchestrator.cli.live import RunDisplay
from orchestrator.cli.logs import log_to
from orchestrator.cli.registry import registry_of_jobs
from orchestrator.cli.report_view import format_gates, listed
from orchestrator.cli.settings import DirOption, JsonFlag, Settings, settings
from orchestrator.cli.source import Document, check_folder, problems_in, read_document
from orchestrator.cli.terminal import counted, glyphs, print_json, print_notes, print_result
from orchestrator.errors import InputError, Problem
from orchestrator.run.gates.planned import gates_for_step
from orchestrator.run.job import CheckedJob, Job, check_job
from orchestrator.run.journal.home import Home
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.sandbox.sandbox import SandboxOnDemand
from orchestrator.service.configuration import load_configuration, tool_servers
from orchestrator.task.analysis import StepGraph
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
    checked = task_in(document)
    with problems_in(document):
        checked_job = check(checked, settings(context), Job(None, checked, check_folder(folder), "as-planned"))
    graph = graph_of(checked_job)
    if not as_json:
        print_warnings(checked_job.warnings)
    waves = [list(wave) for wave in graph.waves]
    summary = {"valid": True, "steps": len(graph.steps), "waves": waves, "width": graph.width}
    body = {**summary, "gates": gates_json(checked), "warnings": [*checked_job.warnings]}
    size = f"{counted(len(graph.steps), 'step')} in {counted(len(graph.waves), 'wave')}, width {graph.width}"
    print_result(body, lambda console: _print_valid(console, size, checked), as_json=as_json)


def _print_valid(console: Console, size: str, task: TaskIR) -> None:
    console.print(Text(f"{glyphs(console).states['done']} valid: {size}"))
    for steps, gates in gate_lines(task):
        console.print(Text(f"gates of {listed(steps)}: {gates}", style="dim"))


def gate_lines(task: TaskIR) -> list[tuple[list[str], str]]:
    """Return the steps that have gates, in groups with the same gates, and these in one line."""
    groups: dict[str, list[str]] = {}
    for step in task.plan.steps:
        if plans := gates_for_step(step, task):
            groups.setdefault(format_gates(plans), []).append(step.id)
    return [(steps, gates) for gates, steps in groups.items()]


def gates_json(task: TaskIR) -> dict[str, Any]:
    """Return the gates of each step by name: null for one that checks the step, else why it does not."""
    return {step.id: {plan.gate: plan.idle or None for plan in gates_for_step(step, task)} for step in task.plan.steps}


def schema() -> None:
    """Print the JSON Schema of TaskIR."""
    print_json(json_schema())


def dry_run(options: Settings, source: str | Document, job: Job, *, full: bool, as_json: bool) -> None:
    """Print the forecast of the job of a source. A request is planned first, but no step runs."""

    async def ask(client: RunClient) -> dict[str, Any]:
        with problems_in(source):
            return await client.forecast(job)

    forecast = asyncio.run(Foreground(options, RunDisplay()).ask(ask))
    if not as_json:
        print_warnings(forecast["warnings"])
    body = {"dry_run": True, **{name: forecast[name] for name in FORECAST_KEYS}, **forecast["report"]}
    print_result(body, lambda console: print_forecast(console, forecast, full=full), as_json=as_json)


def check(task: TaskIR, options: Settings, job: Job) -> CheckedJob:
    """Check a task. Raises `InputError` if it is wrong or cannot run here."""
    log_to(Home(options.home).logs / "orchestrator.log")
    with JournalReader.open_to_read(options.home) as journal:
        servers = tool_servers(load_configuration().mcp)
        checking = check_job(
            replace(job, task=task), registry_of_jobs(options), journal, SandboxOnDemand(), servers=lambda: servers
        )
        return asyncio.run(checking)


def graph_of(checked: CheckedJob) -> StepGraph:
    assert checked.graph is not None, "a task has a graph"
    return checked.graph


def print_warnings(warnings: Sequence[str]) -> None:
    """Print on stderr what a task names that is not here, and can do without."""
    print_notes("warning", warnings)
