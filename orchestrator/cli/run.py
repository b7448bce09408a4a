"""The commands that run something: run and resume."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from orchestrator.cli.conduct import Begin, Conductor
from orchestrator.cli.errors import STATUS_CODES, ExitCode, leaves
from orchestrator.cli.export import check_target, export
from orchestrator.cli.history import AllFlag, RunArgument, find_run
from orchestrator.cli.live import choose_view
from orchestrator.cli.paired import compare
from orchestrator.cli.report_view import print_report
from orchestrator.cli.settings import DirOption, JsonFlag, ModeOption, Settings, settings
from orchestrator.cli.source import check_folder, read_source
from orchestrator.cli.task import dry_run as foretell
from orchestrator.cli.terminal import make_console, one_line, print_json, write
from orchestrator.errors import OrchestratorError
from orchestrator.events import Mode
from orchestrator.history.cache import ViewCache
from orchestrator.history.report import Report
from orchestrator.journal import JournalReader
from orchestrator.runs import Job
from orchestrator.taskir import TaskIR

OutOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Write the artifacts into this folder, over files of the same names."),
]


def run(
    context: typer.Context,
    task: Annotated[str, typer.Argument(metavar="TEXT|FILE", help="A request, a TaskIR file, or - for stdin.")],
    folder: DirOption = None,
    mode: ModeOption = "as-planned",
    out: OutOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Plan and analyse, but run nothing.")] = False,
    compare_serial: Annotated[
        bool, typer.Option("--compare-serial", help="Run it serially too, and tell the speedup.")
    ] = False,
    full: AllFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a request or a TaskIR document.

    The daemon of the state folder runs it, or this command itself where there is none. It is shown while it runs.
    Ctrl-C cancels it in order, a second one ends at once. Exit codes: 0 done, 1 failed, 2 bad input, 130 cancelled.
    """
    chosen = settings(context)
    job = make_job(read_source(task), check_folder(folder), mode)
    if dry_run:
        foretell(chosen, job, full=full, as_json=as_json)
        return
    if out is not None:
        check_target(out)
    begins: list[Begin] = [lambda backend: backend.submit(job)]
    if compare_serial:
        twin = Job(request=job.request, task=job.task, directory=job.directory, mode="serial")
        begins.append(lambda backend: backend.submit(twin))
    conduct(chosen, begins, out, job=job, full=full, as_json=as_json)


def resume(
    context: typer.Context,
    run: RunArgument = "last",
    out: OutOption = None,
    full: AllFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Go on with an interrupted run.

    Steps that are done do not run again.
    """
    chosen = settings(context)
    if out is not None:
        check_target(out)
    with JournalReader.open_to_read(chosen.home) as journal:
        name = find_run(journal, run)
    conduct(chosen, [lambda backend: backend.resume(name)], out, full=full, as_json=as_json)


def make_job(source: str | TaskIR, folder: Path | None, mode: Mode) -> Job:
    """Return the job that the command line describes."""
    if isinstance(source, str):
        return Job(request=source, task=None, directory=folder, mode=mode)
    return Job(request=None, task=source, directory=folder, mode=mode)


def conduct(
    chosen: Settings, begins: list[Begin], out: Path | None, *, job: Job | None = None, full: bool, as_json: bool
) -> None:
    """Carry out the runs, report on the first one (of this `job`), and exit with what became of it."""
    view = choose_view(make_console(sys.stdout), make_console(sys.stderr), as_json=as_json)
    conductor = Conductor(chosen, view)
    trouble = ""
    view.begin()
    try:
        asyncio.run(conductor.conduct(*begins, job=job))
    except* OrchestratorError as group:
        if not conductor.runs:
            raise
        trouble = "; ".join(map(str, leaves(group)))
    finally:
        view.end()
    tell_runs(chosen, conductor.runs, trouble, out, pair=len(begins) > 1, full=full, as_json=as_json)


def tell_runs(
    chosen: Settings,
    runs: Sequence[str],
    trouble: str,
    out: Path | None,
    *,
    full: bool,
    as_json: bool,
    pair: bool = False,
) -> None:
    """Report on the first of one run or a `pair`, and exit with what became of it."""
    console = make_console(sys.stdout)
    with JournalReader.open_to_read(chosen.home) as journal:
        views = ViewCache(journal)
        reports = [views.report(run) for run in runs]
        if out is not None and not trouble:
            trouble = _export(journal, reports[0], out)
        speedup = compare(*reports) if len(reports) == 2 else None
        if as_json:
            unpaired = {"speedup": None} if pair else {}
            print_json(_as_json(reports[0], trouble) | (speedup.to_json() if speedup else unpaired))
        else:
            with views.view(runs[0]) as view:
                write(lambda: print_report(console, reports[0], view, speedup, full=full))
            if trouble:
                write(lambda: make_console(sys.stderr).print(Text(f"error: {one_line(trouble)}"), soft_wrap=True))
    codes = [STATUS_CODES.get(report.status, ExitCode.FAILED) for report in reports]
    raise typer.Exit(ExitCode.FAILED if trouble else max(codes))


def _export(journal: JournalReader, report: Report, out: Path) -> str:
    """Write the artifacts, and return what went wrong: the run itself is not undone by it."""
    try:
        export(out, {name: journal.get(digest) for name, digest in report.artifacts.items()})
    except OrchestratorError as error:
        return str(error)
    return ""


def _as_json(report: Report, trouble: str) -> dict[str, Any]:
    return report.to_json() | ({"error": trouble} if trouble else {})
