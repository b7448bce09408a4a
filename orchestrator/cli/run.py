"""The commands that run something: run and resume."""

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from orchestrator.cli.errors import ExitCode, run_code
from orchestrator.cli.foreground import Foreground, RunClient, StartRun
from orchestrator.cli.live import choose_display
from orchestrator.cli.report_view import compare_with_serial, print_report
from orchestrator.cli.run_names import RunArgument, find_run
from orchestrator.cli.settings import AllFlag, DirectFlag, DirOption, JsonFlag, ModeOption, Settings, settings
from orchestrator.cli.source import Document, check_folder, problems_in, read_source
from orchestrator.cli.terminal import make_console, one_line, print_json, write
from orchestrator.errors import InputError, OrchestratorError, Problem, leaves
from orchestrator.run.job import Job
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.record.cache import ViewCache
from orchestrator.run.record.report import Report
from orchestrator.run.record.view import RunView, accepted_in
from orchestrator.task.modes import Mode
from orchestrator.task.taskir.models import TaskIR

# Imported only when needed
CHECK_TARGET: Final = "orchestrator.cli.export:check_target"
EXPORT: Final = "orchestrator.cli.export:export_results"
TASK_IN: Final = "orchestrator.cli.documents:task_in"
DRY_RUN: Final = "orchestrator.cli.task:dry_run"

OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="When the run is done, write its results into this folder, over files of the same names.",
    ),
]


def run(
    context: typer.Context,
    task: Annotated[str, typer.Argument(metavar="TEXT|FILE", help="A request, a TaskIR file, or - for stdin.")],
    folder: DirOption = None,
    mode: ModeOption = None,
    direct: DirectFlag = False,
    out: OutOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Plan and analyse, but run nothing.")] = False,
    compare_serial: Annotated[
        bool, typer.Option("--compare-serial", help="Run it serially too, and print the speedup.")
    ] = False,
    full: AllFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a request or a TaskIR document.

    The daemon of the state folder runs it, or this command itself if there is no daemon. Progress is shown meanwhile.
    Ctrl-C cancels the run, and a second ctrl-C ends at once. Exit codes: 0 done, 1 failed, 2 bad input, 3 a file
    or a tool is missing that the request needs, 130 cancelled.
    """
    options = settings(context)
    if direct:
        mode = as_direct(mode)
    if compare_serial and mode == "direct":
        raise InputError(Problem("--compare-serial", "a direct answer is one step, which has no serial run", "a plan"))
    source = read_source(task)
    parsed = source if isinstance(source, str) else resolve_name(TASK_IN)(source)
    job = make_job(parsed, check_folder(folder), mode, any_mode=not compare_serial)
    if dry_run:
        resolve_name(DRY_RUN)(options, source, job, full=full, as_json=as_json)
        return
    if out is not None:
        resolve_name(CHECK_TARGET)("--out", out, None if folder is None else str(folder))
    starts: list[StartRun] = [partial(_submit, source, job)]
    if compare_serial:
        twin = Job(request=job.request, task=job.task, directory=job.directory, mode="serial")
        starts.append(partial(_submit, source, twin))
    run_and_report(options, starts, out, is_new=True, full=full, as_json=as_json)


async def _submit(source: str | Document, job: Job, client: RunClient) -> str:
    with problems_in(source):
        return await client.submit(job)


def as_direct(mode: Mode | None) -> Mode:
    """Return the mode of --direct. Raises InputError if --mode names another one."""
    if mode not in (None, "direct"):
        raise InputError(Problem("--direct", f"--mode is {mode}", "one of the two"))
    return "direct"


def resume(
    context: typer.Context,
    run: RunArgument = "last",
    out: OutOption = None,
    full: AllFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Resume an interrupted run.

    Steps that are done do not run again.
    """
    options = settings(context)
    with JournalReader.open_to_read(options.home) as journal:
        name = find_run(journal, run)
        if out is not None:
            resolve_name(CHECK_TARGET)("--out", out, accepted_in([journal.first_event(name)]).directory)
    run_and_report(options, [lambda client: client.resume(name)], out, full=full, as_json=as_json)


def make_job(source: str | TaskIR, folder: Path | None, mode: Mode | None, *, any_mode: bool) -> Job:
    """Return the job for a request or a task.

    Without `mode` it runs as planned, unless `any_mode` lets the router choose the mode of a request.
    """
    if isinstance(source, str):
        free = any_mode and mode is None
        return Job(request=source, task=None, directory=folder, mode=mode or "as-planned", any_mode=free)
    return Job(request=None, task=source, directory=folder, mode=mode or "as-planned")


def run_and_report(
    options: Settings, starts: list[StartRun], out: Path | None, *, is_new: bool = False, full: bool, as_json: bool
) -> None:
    """Start the runs, print the report of the first one, and exit with the code of the worst.

    If the first run `is_new`, the user is asked about the procedures that it proposes.
    """
    display = choose_display(make_console(sys.stdout), make_console(sys.stderr), as_json=as_json)
    foreground = Foreground(options, display)
    error = ""
    display.begin()
    try:
        asyncio.run(foreground.run_all(*starts))
    except* OrchestratorError as group:
        if not foreground.runs:
            raise
        error = "; ".join(map(str, leaves(group)))
    finally:
        display.end()
    runs, pair = foreground.runs, len(starts) > 1
    report, code = _print_report(options, runs, error, out, pair=pair, full=full, as_json=as_json)
    proposes = any("procedure" in step.tools for step in report.graph.steps.values())
    if code == ExitCode.DONE and is_new and proposes and not as_json:
        options.root.ask_about_proposals(options, report.run_id)
    raise typer.Exit(code)


def report_run(options: Settings, run: str, *, full: bool, as_json: bool) -> None:
    """Print the report of a run, and exit with its code."""
    raise typer.Exit(_print_report(options, [run], "", None, pair=False, full=full, as_json=as_json)[1])


def _print_report(
    options: Settings, runs: Sequence[str], error: str, out: Path | None, *, pair: bool, full: bool, as_json: bool
) -> tuple[Report, int]:
    """Print the report of the first of `runs`, and return it with the exit code of the worst.

    `error` is what went wrong outside the runs. With `pair`, the second run is the serial one. `out` is the folder for
    the results.
    """
    console = make_console(sys.stdout)
    with JournalReader.open_to_read(options.home) as journal:
        views = ViewCache(journal)
        reports = [views.report(run) for run in runs]
        if out is not None and not error and reports[0].status == "done":
            with views.view(runs[0]) as view:
                error = _export(journal, view, out)
        # There is one report if the first run was cancelled before the serial one started.
        speedup = compare_with_serial(*reports) if len(reports) == 2 else None
        if as_json:
            unpaired = {"speedup": None} if pair else {}
            print_json(_as_json(reports[0], error) | (speedup.to_json() if speedup else unpaired))
        else:
            with views.view(runs[0]) as view:
                write(lambda: print_report(console, reports[0], view, speedup, full=full))
            if error:
                write(lambda: make_console(sys.stderr).print(Text(f"error: {one_line(error)}"), soft_wrap=True))
    codes = [run_code(report.status, report.missing) for report in reports]
    return reports[0], ExitCode.FAILED if error else max(codes)


def _export(journal: JournalReader, view: RunView, out: Path) -> str:
    try:
        resolve_name(EXPORT)(journal, view, out)
    except OrchestratorError as error:
        # The run is done in any case.
        return str(error)
    return ""


def _as_json(report: Report, error: str) -> dict[str, Any]:
    return report.to_json() | ({"error": error} if error else {})
