"""The commands that give work to the daemon and follow it: submit, watch, result, cancel, retry, delete."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pkgutil import resolve_name
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.daemon import DaemonClient, key_header
from orchestrator.cli.errors import STATUS_CODES, run_code
from orchestrator.cli.modes import ModeOption
from orchestrator.cli.run_names import RunArgument, complete_run, find_run
from orchestrator.cli.settings import AllFlag, DirOption, JsonFlag, Settings, settings
from orchestrator.cli.source import check_folder, read_source
from orchestrator.cli.terminal import one_line, print_json, printable, write
from orchestrator.errors import InputError, Problem
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.record.prior import PRIOR_RUNS
from orchestrator.run.record.report import load_report
from orchestrator.task.events import Priority
from orchestrator.task.taskir.models import TaskIR
from orchestrator.task.taskir.parse import dump_task

# Imported only to show a run until it has ended
FOLLOW: Final = "orchestrator.cli.follow:follow"


def submit(
    context: typer.Context,
    task: Annotated[str, typer.Argument(metavar="TEXT|FILE", help="A request, a TaskIR file, or - for stdin.")],
    folder: DirOption = None,
    mode: ModeOption = None,
    priority: Annotated[
        Priority | None, typer.Option(help="interactive runs start first; default: as the document says.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Submit only one run for all submissions with this key.")
    ] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RUN", help="A run whose artifacts the steps may read; repeatable.", autocompletion=complete_run
        ),
    ] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="Cancel the run when it has used so many tokens.")] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.001, help="Cancel the run when it has run for so many seconds.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Show the run until it has ended, and print its report.")
    ] = False,
    full: AllFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Submit a request or a TaskIR document to the daemon.

    Prints the run's id at once, or its report with --wait.
    """
    options = settings(context)
    source, directory = read_source(task), check_folder(folder)
    body = {
        **({"task": dump_task(source)} if isinstance(source, TaskIR) else {"request": source}),
        "mode": mode,
        "priority": priority,
        "directory": None if directory is None else str(directory.absolute()),
        "limits": {"tokens": tokens, "seconds": seconds},
        "prior_task_ids": after or [],
    }
    headers = key_header(key)
    with DaemonClient(options.home) as daemon:
        if options.registry_flag is not None:
            daemon.check_registry(options.registry_flag)
        try:
            line = daemon.ask("POST", "/v1/runs", json=body, headers=headers)
        except InputError as error:
            raise InputError(*(_by_option(problem, after or ()) for problem in error.problems)) from error
    if wait:
        resolve_name(FOLLOW)(options, line["run_id"], full=full, as_json=as_json)
    _tell(line, as_json=as_json)


def watch(context: typer.Context, run: RunArgument = "last", full: AllFlag = False, as_json: JsonFlag = False) -> None:
    """Show a run of the daemon until it has ended, and print its report.

    Ctrl-C cancels the run.
    """
    options = settings(context)
    resolve_name(FOLLOW)(options, _run_id(options, run), full=full, as_json=as_json)


def result(context: typer.Context, run: RunArgument = "last", as_json: JsonFlag = False) -> None:
    """Print the answer of a run.

    Exits with 1 if it failed, with 3 if a file or a tool is missing that it needs, with 130 if it was cancelled, and
    with 2 if it has not ended.
    """
    with JournalReader.open_to_read(settings(context).home) as journal:
        report = load_report(journal, find_run(journal, run))
    if report.status not in STATUS_CODES:
        raise InputError(Problem(f"run {report.run_id}", f"has not ended: {report.status}", "a run that has"))
    if as_json:
        names = ("run_id", "status", "answer", "error", "doubt", "missing")
        print_json({name: getattr(report, name) for name in names} | {"artifacts": dict(report.artifacts)})
    elif report.answer is not None:
        answer = report.answer
        write(lambda: print(printable(answer)))
        if report.doubt:
            write(lambda: print(f"doubtful: {one_line(report.doubt)}", file=sys.stderr))
    else:
        write(lambda: print(f"error: {one_line(report.error or report.status)}", file=sys.stderr))
    raise typer.Exit(run_code(report.status, report.missing))


def cancel(
    context: typer.Context,
    run: RunArgument = "last",
    step: Annotated[str | None, typer.Argument(metavar="STEP", help="Only this step, and what depends on it.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Have the daemon cancel a run, or one step of it, and print what that did."""
    options = settings(context)
    name, body = _run_id(options, run), {} if step is None else {"step": step}
    with DaemonClient(options.home) as daemon:
        line = daemon.ask("POST", f"/v1/runs/{name}/cancel", json=body)
    if as_json:
        print_json(line)
    else:
        write(lambda: print(one_line(line["done"])))


def retry(context: typer.Context, run: RunArgument = "last", as_json: JsonFlag = False) -> None:
    """Submit the job of a run that has ended again, as a new run."""
    options = settings(context)
    name = _run_id(options, run)
    with DaemonClient(options.home) as daemon:
        line = daemon.ask("POST", f"/v1/runs/{name}/retry")
    _tell(line, as_json=as_json)


def delete(context: typer.Context, run: RunArgument, as_json: JsonFlag = False) -> None:
    """Have the daemon delete a run that has ended, and all that is kept of it."""
    options = settings(context)
    name = _run_id(options, run)
    with DaemonClient(options.home) as daemon:
        daemon.ask("DELETE", f"/v1/runs/{name}")
    if as_json:
        print_json({"run_id": name, "deleted": True})


def _by_option(problem: Problem, follows: Sequence[str]) -> Problem:
    # The daemon's problem names a field, which the user gave as --after.
    named = any(f"run {run!r}" in problem.what or f"run {run} " in problem.what for run in follows)
    return replace(problem, where="--after") if named and problem.where == PRIOR_RUNS else problem


def _run_id(options: Settings, run: str) -> str:
    with JournalReader.open_to_read(options.home) as journal:
        return find_run(journal, run)


def _tell(line: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(line)
    else:
        write(lambda: print(line["run_id"]))
