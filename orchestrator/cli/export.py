"""The command `export`: write the results of a run into a folder of the user, or what it did when into a trace file.

`run --out` writes results, too.
"""

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.changes import NewFile, WrittenFile, write_files
from orchestrator.cli.daemon import answers
from orchestrator.cli.run_names import RunArgument, find_run
from orchestrator.cli.settings import JsonFlag, settings
from orchestrator.cli.terminal import one_line, print_lines
from orchestrator.errors import InputError, Problem
from orchestrator.files import replace_file
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.record.chrome_trace import chrome_trace
from orchestrator.run.record.report import build_report, results
from orchestrator.run.record.spans import run_spans
from orchestrator.run.record.view import RunView


def export(
    context: typer.Context,
    run: RunArgument,
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="The folder; it is created if there is none.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write what the run did when into this file instead, for Perfetto (ui.perfetto.dev) or"
            " chrome://tracing. The run need not have ended.",
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write the results of a run into a folder, over files of the same names: all of them or none.

    The results are the outputs that the request asked for, and new versions of files. The folder may not be the one
    that the run read: use `orchestrator apply` for that. With --trace, write a trace file instead.
    """
    if (folder is None) == (trace is None):
        problem = "neither DIR nor --trace is given" if folder is None else "DIR and --trace are both given"
        raise InputError(Problem("export", problem, "exactly one of them"))
    with JournalReader.open_to_read(settings(context).home) as journal:
        if trace is not None:
            # Without a daemon a run that has not ended was probably interrupted: it is shown up to its latest event.
            now = time.time() if answers(settings(context).home) else None
            _export_trace(journal, find_run(journal, run), trace, now, as_json=as_json)
        elif folder is not None:
            view = done_run(journal, run)
            check_target("DIR", folder, view.accepted.directory)
            recovered, written = export_results(journal, view, folder)
            print_written(view.accepted.run, folder, recovered, written, as_json=as_json)


def _export_trace(journal: JournalReader, run: str, path: Path, now: float | None, *, as_json: bool) -> None:
    view = RunView.of(event for _, event in journal.events(run))
    report = build_report(view, journal.get)
    text = chrome_trace(run_spans(view, report, None if now is None else now - view.accepted.at))
    try:
        replace_file(path, text)
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        raise InputError(Problem(f"--trace {path}", problem, "a file in a folder that can be written to")) from error
    body = {"run_id": run, "status": view.status, "trace": str(path.absolute())}
    line = f"{one_line(str(path))}  open it in https://ui.perfetto.dev or chrome://tracing"
    print_lines(body, [line], as_json=as_json)


def done_run(journal: JournalReader, run: str) -> RunView:
    """Return the view of the run that `run` names. Raises InputError if the run is not done."""
    name = find_run(journal, run)
    view = RunView.of(event for _, event in journal.events(name))
    if view.status != "done":
        accepted = "a run that is done; `orchestrator show RUN --artifact NAME` prints single artifacts of any run"
        raise InputError(Problem(f"run {name}", f"is {view.status}", accepted))
    return view


def check_target(where: str, folder: Path, directory: str | None) -> None:
    """Create `folder` if there is none. `where` is what the command line calls it.

    Raises InputError if it cannot be written to, or is `directory`, whose files the run reads.
    """
    place = f"{where} {folder}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _refused(place, f"cannot be created: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _refused(place, "cannot be written to")
    if directory is not None and os.path.exists(directory) and os.path.samefile(folder, directory):
        accepted = "another folder; `orchestrator apply RUN` writes into this one when the run is done"
        raise InputError(Problem(place, "is the folder whose files the run reads", accepted))


def _refused(place: str, problem: str) -> InputError:
    return InputError(Problem(place, problem, "a folder that can be written to, or a new one"))


def export_results(journal: JournalReader, view: RunView, folder: Path) -> tuple[str, tuple[WrittenFile, ...]]:
    """Write the results of a run into a folder. Returns and raises what `write_files` does."""
    files = [NewFile(result.name, journal.get(result.digest)) for result in results(view)]
    return write_files(folder, files, view.accepted.run)


def print_written(run: str, folder: Path, recovered: str, written: tuple[WrittenFile, ...], *, as_json: bool) -> None:
    """Print which files of a folder are written. `recovered` says what was undone before, or is empty."""
    files = [{"name": file.name, "state": "new" if file.is_new else "changed"} for file in written]
    lines = [one_line(recovered)] if recovered else []
    lines += [f"{file['state']}  {one_line(file['name'])}" for file in files]
    lines += [] if written else [f"{one_line(str(folder))} has all results already"]
    body = {"run_id": run, "folder": str(folder.absolute()), "files": files}
    print_lines(body, lines, as_json=as_json)
