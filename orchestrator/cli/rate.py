"""The command that rates a run, a step of it, or a chat: rate."""

from typing import Annotated, Final

import typer

from orchestrator.cli.backend import ask_backend
from orchestrator.cli.run_names import RUN_HELP, complete_run, find_run, is_chat
from orchestrator.cli.settings import JsonFlag, Settings, settings
from orchestrator.cli.terminal import one_line, print_json, write
from orchestrator.errors import InputError, Problem
from orchestrator.run.journal.chats import ChatRated
from orchestrator.run.journal.journal import JournalReader
from orchestrator.task.events import RatingGiven

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
    # The backend sets the author and the time.
    event = RatingGiven(at=0.0, score=read_score(score), by="", step=steps[0] if steps else None, note=note)
    options = settings(context)
    if is_chat(run):
        _rate_chat(options, run, event, as_json)
        return
    with JournalReader.open_to_read(options.home) as journal:
        name = find_run(journal, run)
    stored = ask_backend(options, lambda backend: backend.rate(name, event))
    if as_json:
        names = ("step", "score", "by", "note", "at")
        print_json({"run_id": name} | {field: getattr(stored, field) for field in names})
    else:
        write(lambda: print(f"{stored.step or name} rated {stored.score:g} by {one_line(stored.by)}"))


def _rate_chat(options: Settings, chat: str, event: RatingGiven, as_json: bool) -> None:
    if event.step is not None:
        raise InputError(Problem("STEP", f"{event.step!r} is given, and a chat has no steps", "a score alone"))
    rating = ChatRated(at=0.0, chat=chat, score=event.score, by=event.by, note=event.note)
    stored = ask_backend(options, lambda backend: backend.rate_chat(rating))
    if as_json:
        print_json({field: getattr(stored, field) for field in ("chat", "score", "by", "note", "at")})
    else:
        write(lambda: print(f"{chat} rated {stored.score:g} by {one_line(stored.by)}"))


def read_score(text: str) -> float:
    """Return the score for a word or a number. Raises InputError."""
    try:
        score = WORDS[text] if text in WORDS else float(text)
    except ValueError:
        score = -1.0
    if not 0.0 <= score <= 1.0:
        raise InputError(Problem("SCORE", f"{text!r} is no score", ACCEPTED))
    return score
