"""The commands about past runs: runs, show, explain. They only read the journal, without a lock or a model."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.cli.explain_view import print_chat, print_explanation
from orchestrator.cli.report_view import print_report
from orchestrator.cli.settings import JsonFlag, settings, settings_so_far
from orchestrator.cli.terminal import STATE_STYLES, make_console, one_line, print_json, seconds, write
from orchestrator.errors import InputError, Problem
from orchestrator.run.journal import JournalReader, RunRow
from orchestrator.run.record.attempt_answers import AttemptAnswer, attempt_answer
from orchestrator.run.record.cache import ViewCache
from orchestrator.run.record.report import Report, StepRow, explanation_json, load_report
from orchestrator.service.callers import user_key

LAST = "last"
CHAT_PREFIXES = ("chatcmpl-", "resp_")  # how the ids of answers of the API start
MOST_COMPLETED = 1000
RUN_HELP = "The run: its id, the beginning of it, or `last`, which is your last one."


def complete_run(context: typer.Context, incomplete: str) -> list[str]:
    with JournalReader.open_to_read(settings_so_far(context).home) as journal:
        return [row.run for row in journal.runs(MOST_COMPLETED) if row.run.startswith(incomplete)]


RunArgument = Annotated[str, typer.Argument(metavar="RUN", help=RUN_HELP, autocompletion=complete_run)]
AllFlag = Annotated[bool, typer.Option("--all", help="Show every step, however many there are.")]


def runs(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, help="How many runs to list, the newest first.")] = 20,
    as_json: JsonFlag = False,
) -> None:
    """List past runs, newest first."""
    with JournalReader.open_to_read(settings(context).home) as journal:
        rows = journal.runs(limit)
    if as_json:
        print_json({"runs": [_run_json(row) for row in rows]})
        return
    console = make_console(sys.stdout)
    write(lambda: _print_runs(console, rows))


def show(
    context: typer.Context,
    run: RunArgument = LAST,
    step: Annotated[
        str, typer.Argument(metavar="STEP", help="With --attempt: the step, such as S2.", show_default=False)
    ] = "",
    artifact: Annotated[
        str | None, typer.Option(metavar="NAME", help="Write this artifact to stdout, byte for byte.")
    ] = None,
    attempt: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Print the answer of attempt N at STEP, and why it failed."),
    ] = None,
    full: AllFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Show the report of a run, or the answer of a failed attempt at one of its steps."""
    if bool(step) != (attempt is not None):
        missing = "--attempt is missing" if step else "STEP is missing"
        raise InputError(Problem("show", missing, "`show RUN STEP --attempt N`, or neither STEP nor --attempt"))
    with JournalReader.open_to_read(settings(context).home) as journal:
        name = find_run(journal, run)
        views = ViewCache(journal)
        report = views.report(name)
        if artifact is not None:
            data = journal.get(_digest(report, artifact))
            write(lambda: sys.stdout.buffer.write(data))
            return
        if attempt is not None:
            answer = attempt_answer(journal, _step(report, step), attempt)
            write(lambda: print_json(asdict(answer)) if as_json else _print_answer(answer))
            return
        if as_json:
            print_json(report.to_json())
            return
        console = make_console(sys.stdout)
        with views.view(name) as view:
            write(lambda: print_report(console, report, view, None, full=full))


def explain(
    context: typer.Context,
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help=f"{RUN_HELP} Or the id of a chat, without a step.", autocompletion=complete_run
        ),
    ],
    step: Annotated[
        str,
        typer.Argument(metavar="STEP", help="The step, such as S2, or S2[0] for an item of it.", show_default=False),
    ] = "",
    as_json: JsonFlag = False,
) -> None:
    """Explain one step of a run, or a chat whose model the router chose.

    Of a step it prints what it waited for, which role and model did it and why, how each attempt ended, and the gates'
    results. Of a chat it prints who was chosen and why, how the answers ended, and the ratings. The id of a chat is
    that of the API's answer to it.
    """
    if is_chat(run):
        _explain_chat(context, run, step, as_json)
        return
    with JournalReader.open_to_read(settings(context).home) as journal:
        report = load_report(journal, find_run(journal, run))
    row = _step(report, step)
    if as_json:
        print_json(explanation_json(report, row))
        return
    console = make_console(sys.stdout)
    write(lambda: print_explanation(console, report, row))


def _print_answer(answer: AttemptAnswer) -> None:
    # How the attempt ended goes to stderr, so that the answer can be piped.
    console = make_console(sys.stderr)
    why = f": {answer.message}" if answer.message else ""
    console.print(
        Text(f"{answer.step}, attempt {answer.number} by {answer.role} on {answer.model}: {answer.outcome}{why}")
    )
    if answer.evidence and answer.evidence not in answer.message:
        console.print(Text(answer.evidence))
    if answer.answer:
        sys.stdout.write(answer.answer.removesuffix("\n") + "\n")


def is_chat(text: str) -> bool:
    """Return whether `text` is the id of an answer of the API to a chat, not of a run."""
    return text.startswith(CHAT_PREFIXES)


def find_run(journal: JournalReader, text: str) -> str:
    """Return the id of the run that `text` names: an id, the start of one, or `last`, which is this user's newest run.

    Raises InputError for none or several.
    """
    rows = journal.runs()
    names = [row.run for row in rows]
    if text in names:
        return text
    if text == LAST and names:
        return _last(rows, user_key())
    matches = [name for name in names if text and name.startswith(text)]
    if len(matches) == 1:
        return matches[0]
    if not names:
        raise InputError(Problem("RUN", f"there are no runs in {journal.home.path}", "`orchestrator run` first"))
    problem = f"{text!r} is the beginning of {len(matches)} runs" if matches else f"there is no run {text!r}"
    raise InputError(Problem("RUN", problem, f"{_listed(matches or names)}, or `last`"))


def _last(rows: Sequence[RunRow], user: str) -> str:
    # Early versions did not record whose runs were: their owner is "".
    own = next((row.run for row in rows if row.owner in (user, "")), None)
    if own is None:
        problem = f"{user} has submitted none of the {len(rows)} runs"
        raise InputError(Problem("RUN", problem, f"{_listed([row.run for row in rows])}: see `orchestrator runs`"))
    return own


def _explain_chat(context: typer.Context, chat: str, step: str, as_json: bool) -> None:
    if step:
        raise InputError(Problem("STEP", f"{step!r} is given, and a chat has no steps", "the id of the chat alone"))
    with JournalReader.open_to_read(settings(context).home) as journal:
        record = journal.chat(chat)
    if as_json:
        print_json(asdict(record))
        return
    console = make_console(sys.stdout)
    write(lambda: print_chat(console, record))


def _step(report: Report, name: str) -> StepRow:
    for step in report.steps:
        if step.id == name:
            return step
    names = [step.id for step in report.steps]
    problem = f"{report.run_id} has no step {name!r}" if name else "is missing"
    raise InputError(Problem("STEP", problem, _listed(names) or "none: it has no steps"))


def _digest(report: Report, name: str) -> str:
    if name in report.artifacts:
        return report.artifacts[name]
    accepted = _listed(list(report.artifacts)) or "none: the run has made nothing"
    raise InputError(Problem("--artifact", f"{report.run_id} has no artifact {name!r}", accepted))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")


def _print_runs(console: Console, rows: Sequence[RunRow]) -> None:
    if not rows:
        console.print(Text("There are no runs yet.", style="dim"))
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold", expand=True)
    for title in ("Run", "Status", "Accepted"):
        table.add_column(title, no_wrap=True)
    table.add_column("Took", no_wrap=True, justify="right")
    table.add_column("Request", no_wrap=True, overflow="ellipsis", ratio=1)
    for row in rows:
        took = row.finished - row.accepted if row.finished is not None else None
        status = Text(row.status, style=STATE_STYLES.get(row.status, ""))
        status.append(" ?" if row.doubt else "", style="yellow")
        table.add_row(row.run, status, _when(row.accepted), seconds(took), Text(one_line(row.title)))
    console.print(table)


def _when(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M")


def _run_json(row: RunRow) -> dict[str, Any]:
    return {
        "run_id": row.run,
        "status": row.status,
        "mode": row.mode,
        "request": row.title,
        "accepted_at": row.accepted,
        "finished_at": row.finished,
        "error": row.error,
        "doubt": row.doubt,
        "owner": row.owner,
    }
