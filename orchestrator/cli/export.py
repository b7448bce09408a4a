"""The commands about what a run has made: diff, apply, export, which also writes a trace file, or a page to look at.

`run --out` writes results, too.
"""

import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from orchestrator.api.page.exported import exported_page
from orchestrator.cli.changes import NewFile, WrittenFile, write_files
from orchestrator.cli.daemon import answers
from orchestrator.cli.run_names import RunArgument, find_run
from orchestrator.cli.settings import JsonFlag, settings
from orchestrator.cli.terminal import one_line, print_lines, print_result, printable
from orchestrator.errors import InputError, Problem
from orchestrator.files import replace_file
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.record.chrome_trace import chrome_trace
from orchestrator.run.record.diffs import result_diff
from orchestrator.run.record.report import RunResult, build_report, results
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
    page: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help="Write the run into this file instead, as the web page shows it, for a browser without a daemon and"
            " without a network. The run need not have ended.",
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write the results of a run into a folder, over files of the same names: all of them or none.

    The results are the outputs that the request asked for, and new versions of files. The folder may not be the one
    that the run read: use `orchestrator apply` for that. With --trace or --html, write one file
    about the run instead.
    """
    targets = [name for name, path in (("DIR", folder), ("--trace", trace), ("--html", page)) if path is not None]
    if len(targets) != 1:
        names = " and ".join(targets)
        problem = f"{names} are given" if targets else "none of DIR, --trace and --html is given"
        raise InputError(Problem("export", problem, "exactly one of them"))
    with JournalReader.open_to_read(settings(context).home) as journal:
        # Without a daemon a run that has not ended was probably interrupted: it is shown up to its latest event.
        now = time.time() if folder is None and answers(settings(context).home) else None
        if trace is not None:
            _export_trace(journal, find_run(journal, run), trace, now, as_json=as_json)
        elif page is not None:
            _export_page(journal, find_run(journal, run), page, now, as_json=as_json)
        elif folder is not None:
            view = done_run(journal, run)
            check_target("DIR", folder, view.accepted.directory)
            recovered, written = export_results(journal, view, folder)
            print_written(view.accepted.run, folder, recovered, written, as_json=as_json)


def _export_trace(journal: JournalReader, run: str, path: Path, now: float | None, *, as_json: bool) -> None:
    view = RunView.of(event for _, event in journal.events(run))
    report = build_report(view, journal.get)
    text = chrome_trace(run_spans(view, report, None if now is None else now - view.accepted.at))
    _write("--trace", path, text)
    body = {"run_id": run, "status": view.status, "trace": str(path.absolute())}
    line = f"{one_line(str(path))}  open it in https://ui.perfetto.dev or chrome://tracing"
    print_lines(body, [line], as_json=as_json)


def _export_page(journal: JournalReader, run: str, path: Path, now: float | None, *, as_json: bool) -> None:
    _write("--html", path, exported_page(journal, run, now))
    body = {"run_id": run, "status": journal.run(run).status, "html": str(path.absolute())}
    print_lines(body, [f"{one_line(str(path))}  open it in a browser"], as_json=as_json)


def _write(option: str, path: Path, text: str) -> None:
    try:
        replace_file(path, text)
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        raise InputError(Problem(f"{option} {path}", problem, "a file in a folder that can be written to")) from error


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


# By the start of a line. The first match counts, so "---" and "+++" come before "-" and "+".
_STYLES = {"---": "bold", "+++": "bold", "@": "cyan", "+": "green", "-": "red", "\\": "dim"}


def diff(context: typer.Context, run: RunArgument = "last", as_json: JsonFlag = False) -> None:
    """Show how the results of a run differ from the files that it read, as a unified diff.

    It compares with the files as the run read them, whatever has happened to them since. In colour on a terminal; the
    output to a pipe or a file can be read by `patch -p1` and `git apply`.
    """
    with JournalReader.open_to_read(settings(context).home) as journal:
        view = done_run(journal, run)
        diffs = {result: result_diff(journal, result) for result in results(view)}
    files = [{"name": result.name, "state": _state(result), "diff": text} for result, text in diffs.items()]
    body = {"run_id": view.accepted.run, "files": files}
    print_result(body, lambda console: _print_diffs(console, diffs.values()), as_json=as_json)


def apply(
    context: typer.Context,
    run: RunArgument = "last",
    folder: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Where the folder of the run is now, if it was moved."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write the results of a run into the folder whose files it read: all of them or none.

    New versions replace files that are still as the run read them, and new files are created where there is none.
    Otherwise nothing is written. Links are not followed, and files keep their permissions. This command writes with
    the rights of whoever calls it; the daemon never writes into the folder. If it was interrupted, the next `apply` or
    `export` to this folder puts everything back first.
    """
    with JournalReader.open_to_read(settings(context).home) as journal:
        view = done_run(journal, run)
        place = folder or _folder(view)
        run_results = results(view)
        _check_originals(view, run_results)
        files = [NewFile(result.name, journal.get(result.digest), result.original) for result in run_results]
    recovered, written = write_files(place, files, view.accepted.run)
    print_written(view.accepted.run, place, recovered, written, as_json=as_json)


def _state(result: RunResult) -> str:
    if not result.original:
        return "new"
    return "unchanged" if result.original == result.digest else "changed"


def _folder(view: RunView) -> Path:
    if view.accepted.directory is None:
        accepted = "a run with --dir; `orchestrator export RUN DIR` writes into any folder"
        raise InputError(Problem(f"run {view.accepted.run}", "read no folder that could be written back", accepted))
    return Path(view.accepted.directory)


def _check_originals(view: RunView, run_results: Iterable[RunResult]) -> None:
    problems: list[Problem] = []
    accepted = "to run it again, or `orchestrator export RUN DIR` into another folder"
    for result in run_results:
        if result.original is None:
            why = "the run has not recorded what was there before: it is from an earlier version, or could not read it"
            problems.append(Problem(result.name, why, accepted))
        elif result.has_changed:
            problems.append(Problem(result.name, "was changed while the run read it", accepted))
    if problems:
        raise InputError(*problems)


def _print_diffs(console: Console, diffs: Iterable[str]) -> None:
    for text in diffs:
        if not sys.stdout.isatty():
            sys.stdout.write(text)
            continue
        for line in text.split("\n")[:-1]:
            style = next((style for start, style in _STYLES.items() if line.startswith(start)), "")
            console.print(Text(printable(line), style=style), soft_wrap=True)
