"""The commands about past runs: runs, show, explain. They only read the journal, without a lock or a model.

Of an attempt that runs, the journal has only the start; how far it has come, `explain` asks the daemon.
"""

import sys
from dataclasses import asdict
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, Final, cast

import typer
from rich.console import Console
from rich.text import Text

from orchestrator.cli.complete import complete_run
from orchestrator.cli.explain_view import print_chat, print_explanation
from orchestrator.cli.report_view import print_report
from orchestrator.cli.run_names import LAST, RUN_HELP, RunArgument, find_run, is_chat, is_interrupted, listed
from orchestrator.cli.settings import AllFlag, JsonFlag, settings
from orchestrator.cli.terminal import make_console, print_json, print_result, write
from orchestrator.errors import InputError, Problem
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.record.attempt_answers import AttemptAnswer, attempt_answer
from orchestrator.run.record.cache import ViewCache
from orchestrator.run.record.report import Report, StepRow, explanation_json, load_report, usage_json
from orchestrator.run.record.view import RunView

# Imported only for an attempt that runs, because the client of the daemon is large.
STEP_PROGRESS: Final = "orchestrator.cli.daemon:step_progress"


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
        interrupted = is_interrupted(journal, report.status)
        with views.view(name) as view:
            print_result(
                report.to_json(),
                lambda console: _print_run(console, report, view, interrupted=interrupted, full=full),
                as_json=as_json,
            )


def _print_run(console: Console, report: Report, view: RunView, *, interrupted: bool, full: bool) -> None:
    print_report(console, report, view, None, full=full)
    if interrupted:
        note = (
            f"interrupted, since no process owns the state folder: `orchestrator resume {report.run_id}` continues it"
        )
        console.print(Text(note, style="yellow"), soft_wrap=True)


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

    If the run has only one step, STEP may be left out. Of a step it prints what it waited for, which role and model did
    it and why, how each attempt ended, and the gates' results; of an attempt that the daemon runs, its place in the
    queue, how much of the prompt is read, how much is written, or which gates check, and for how long. Of a chat it
    prints who was chosen and why, how the answers ended, and the ratings. The id of a chat is that of the API's answer
    to it.
    """
    if is_chat(run):
        _explain_chat(context, run, step, as_json)
        return
    home = settings(context).home
    with JournalReader.open_to_read(home) as journal:
        report = load_report(journal, find_run(journal, run))
    row = _step(report, step or (report.steps[0].id if len(report.steps) == 1 else ""))
    body = explanation_json(report, row, _progress(home, report.run_id, row))
    print_result(body, lambda console: print_explanation(console, report, row, body["progress"]), as_json=as_json)


def _progress(home: Path, run: str, step: StepRow) -> dict[str, Any] | None:
    if step.current_attempt is None:
        return None
    return cast(dict[str, Any] | None, resolve_name(STEP_PROGRESS)(home, run, step.id))


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


def _explain_chat(context: typer.Context, chat: str, step: str, as_json: bool) -> None:
    if step:
        raise InputError(Problem("STEP", f"{step!r} is given, and a chat has no steps", "the id of the chat alone"))
    with JournalReader.open_to_read(settings(context).home) as journal:
        record = journal.chat(chat)
    body = asdict(record)
    for answer, answered in zip(body["answers"], record.answers, strict=True):
        answer["usage"] = usage_json(answered.usage)
    print_result(body, lambda console: print_chat(console, record), as_json=as_json)


def _step(report: Report, name: str) -> StepRow:
    for step in report.steps:
        if step.id == name:
            return step
    if not report.steps:
        raise InputError(
            Problem(f"run {report.run_id}", f"has no steps: {report.error or report.status}", "a run that has steps")
        )
    names = [step.id for step in report.steps]
    problem = f"{report.run_id} has no step {name!r}" if name else "is missing"
    raise InputError(Problem("STEP", problem, listed(names)))


def _digest(report: Report, name: str) -> str:
    if name in report.artifacts:
        return report.artifacts[name]
    accepted = listed(list(report.artifacts)) or "none: the run has made nothing"
    raise InputError(Problem("--artifact", f"{report.run_id} has no artifact {name!r}", accepted))
