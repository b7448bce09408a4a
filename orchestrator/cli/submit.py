"""The command that gives work to the daemon: submit.

The daemon checks the job, so this needs neither the models of TaskIR nor the journal.
"""

from collections.abc import Sequence
from dataclasses import replace
from pkgutil import resolve_name
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.complete import complete_run
from orchestrator.cli.daemon import DaemonClient, key_header
from orchestrator.cli.settings import AllFlag, DirOption, JsonFlag, ModeOption, settings
from orchestrator.cli.source import check_folder, problems_in, read_source
from orchestrator.cli.terminal import print_lines
from orchestrator.errors import InputError, Problem
from orchestrator.task.modes import Priority
from orchestrator.task.taskir.fields import PRIOR_RUNS

# Imported only to show a run until it has ended
FOLLOW: Final = "orchestrator.cli.follow:follow"
# Imported only for a document
JSON_IN: Final = "orchestrator.cli.documents:json_in"


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
    tokens: Annotated[
        int | None, typer.Option(min=1, help="Cancel the run when it has used this number of tokens.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.001, help="Cancel the run when it has run for this number of seconds.")
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
        **({"request": source} if isinstance(source, str) else {"task": resolve_name(JSON_IN)(source)}),
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
        with problems_in(source):
            line = _submitted(daemon, body, headers, after or ())
    if wait:
        resolve_name(FOLLOW)(options, line["run_id"], full=full, as_json=as_json)
    print_submitted(line, as_json=as_json)


def _submitted(
    daemon: DaemonClient, body: dict[str, Any], headers: dict[str, str], follows: Sequence[str]
) -> dict[str, Any]:
    try:
        return daemon.ask("POST", "/v1/runs", json=body, headers=headers)
    except InputError as error:
        raise InputError(*(_by_option(problem, follows) for problem in error.problems)) from error


def _by_option(problem: Problem, follows: Sequence[str]) -> Problem:
    # The daemon's problem names a field, which the user gave as --after.
    named = any(f"run {run!r}" in problem.what or f"run {run} " in problem.what for run in follows)
    return replace(problem, where="--after") if named and problem.where == PRIOR_RUNS else problem


def print_submitted(line: dict[str, Any], *, as_json: bool) -> None:
    """Print the id of a run that was submitted."""
    print_lines(line, [line["run_id"]], as_json=as_json)
