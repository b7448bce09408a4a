"""The command that rates a run, a step of it, or a chat: rate."""

from typing import Annotated, Any, Final

import typer

from orchestrator.cli.client import ask
from orchestrator.cli.complete import complete_run
from orchestrator.cli.daemon import path_part
from orchestrator.cli.run_names import RUN_HELP, find_run, is_chat
from orchestrator.cli.settings import JsonFlag, Settings, settings
from orchestrator.cli.terminal import one_line, print_lines
from orchestrator.errors import InputError, Problem
from orchestrator.run.journal.reader import JournalReader

RatedArgument = Annotated[
    str,
    typer.Argument(metavar="RUN", help=f"{RUN_HELP} Or the id of a chat.", autocompletion=complete_run),
]

WORDS: Final = {"good": 1.0, "bad": 0.0}
ACCEPTED: Final = "good, bad, or a number from 0 (bad) to 1 (good)"


def rate(
    context: typer.Context,
    run: RatedArgument,
    rating: Annotated[
        list[str], typer.Argument(metavar="[STEP] SCORE", help=f"A step, if only that one is rated; then {ACCEPTED}.")
    ],
    note: Annotated[str, typer.Option(metavar="TEXT", help="The reason, which is kept with the rating.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Rate a run that has ended, one step of it, or a chat whose model the router chose.

    Ratings are journaled with their author and time, and `show` and `explain` print them. What was rated may be rated
    again.
    """
    *steps, score = rating
    if len(steps) > 1:
        raise InputError(Problem("SCORE", f"{' '.join(rating)!r} is more than a step and a score", "[STEP] SCORE"))
    step, body = steps[0] if steps else None, {"score": read_score(score), "note": note}
    options = settings(context)
    rated, stored = _rate_chat(options, run, step, body) if is_chat(run) else _rate_run(options, run, step, body)
    print_lines(stored, [f"{rated} rated {stored['score']:g} by {one_line(stored['by'])}"], as_json=as_json)


def _rate_run(options: Settings, run: str, step: str | None, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    with JournalReader.open_to_read(options.home) as journal:
        name = find_run(journal, run)
    return step or name, ask(options, "POST", f"/v1/runs/{name}/ratings", json={**body, "step": step})


def _rate_chat(options: Settings, chat: str, step: str | None, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    if step is not None:
        raise InputError(Problem("STEP", f"{step!r} is given, and a chat has no steps", "a score alone"))
    stored = ask(options, "POST", f"/v1/chats/{path_part('RUN', chat)}/ratings", json=body)
    return chat, {name: stored[name] for name in ("chat", "score", "by", "note", "at")}


def read_score(text: str) -> float:
    """Return the score for a word or a number. Raises InputError."""
    try:
        score = WORDS[text] if text in WORDS else float(text)
    except ValueError:
        score = -1.0
    if not 0.0 <= score <= 1.0:
        raise InputError(Problem("SCORE", f"{text!r} is no score", ACCEPTED))
    return score
