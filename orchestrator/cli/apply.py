"""The commands `diff` and `apply`: compare the results of a run with the user's files, and write them back."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from orchestrator.cli.changes import NewFile, write_files
from orchestrator.cli.export import done_run, print_written
from orchestrator.cli.run_names import RunArgument
from orchestrator.cli.settings import JsonFlag, settings
from orchestrator.cli.terminal import print_result, printable
from orchestrator.errors import InputError, Problem
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.record.diffs import result_diff
from orchestrator.run.record.report import RunResult, results
from orchestrator.run.record.view import RunView

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
