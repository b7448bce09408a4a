"""The commands that follow what was given to the daemon: watch, result, cancel, retry, prioritise, delete."""

import sys
from pkgutil import resolve_name
from typing import Annotated, Final

import typer

from orchestrator.cli.daemon import DaemonClient, key_header
from orchestrator.cli.errors import STATUS_CODES, run_code
from orchestrator.cli.run_names import RunArgument, find_run, is_interrupted
from orchestrator.cli.settings import AllFlag, JsonFlag, Settings, settings
from orchestrator.cli.submit import FOLLOW, print_submitted
from orchestrator.cli.terminal import one_line, print_json, print_lines, printable, write
from orchestrator.errors import InputError, Problem
from orchestrator.run.journal.reader import JournalReader

# Imported only to print the answer of a run
REPORT: Final = "orchestrator.run.record.report:load_report"


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
        report = resolve_name(REPORT)(journal, find_run(journal, run))
        interrupted = is_interrupted(journal, report.status)
    if report.status not in STATUS_CODES:
        status, accepted = (
            ("interrupted", f"a run that has; `orchestrator resume {report.run_id}` continues this one")
            if interrupted
            else (report.status, "a run that has")
        )
        raise InputError(Problem(f"run {report.run_id}", f"has not ended: {status}", accepted))
    if as_json:
        print_json(report.result_json())
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
    print_lines(line, [one_line(line["done"])], as_json=as_json)


def retry(
    context: typer.Context,
    run: RunArgument = "last",
    step: Annotated[
        str | None, typer.Argument(metavar="STEP", help="Only this step, and what depends on it or is not done.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Of all requests with this key, only the first one counts.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Submit the job of a run that has ended again, as a new run.

    With STEP, the new run takes over the plan and the outputs of finished steps. If the run has not ended, the step's
    running attempt is stopped and made again, in the same run.
    """
    options = settings(context)
    name, body, headers = _run_id(options, run), {} if step is None else {"step": step}, key_header(key)
    with DaemonClient(options.home) as daemon:
        line = daemon.ask("POST", f"/v1/runs/{name}/retry", json=body, headers=headers)
    if line["run_id"] == name:
        print_lines(line, [f"{step} of run {name} is tried again"], as_json=as_json)
    else:
        print_submitted(line, as_json=as_json)


def prioritise(
    context: typer.Context,
    run: RunArgument,
    step: Annotated[str, typer.Argument(metavar="STEP", help="The step to do before the others.")],
    as_json: JsonFlag = False,
) -> None:
    """Have the daemon do a step of a run, and what that step waits for, before the run's other steps."""
    options = settings(context)
    name = _run_id(options, run)
    with DaemonClient(options.home) as daemon:
        line = daemon.ask("POST", f"/v1/runs/{name}/prioritise", json={"step": step})
    print_lines(line, [f"first in run {name}: {', '.join(line['first'])}"], as_json=as_json)


def delete(context: typer.Context, run: RunArgument, as_json: JsonFlag = False) -> None:
    """Have the daemon delete a run that has ended, and all that is kept of it."""
    options = settings(context)
    name = _run_id(options, run)
    with DaemonClient(options.home) as daemon:
        daemon.ask("DELETE", f"/v1/runs/{name}")
    if as_json:
        print_json({"run_id": name, "deleted": True})


def _run_id(options: Settings, run: str) -> str:
    with JournalReader.open_to_read(options.home) as journal:
        return find_run(journal, run)
