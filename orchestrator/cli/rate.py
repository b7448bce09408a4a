"""The command that says how good a run was, or a step of it: rate."""

import asyncio
import getpass
import os
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.client import Daemon, answers
from orchestrator.cli.history import RunArgument, find_run
from orchestrator.cli.settings import JsonFlag, Settings, settings
from orchestrator.cli.terminal import one_line, print_json, write
from orchestrator.errors import InputError, Problem
from orchestrator.events import RatingGiven
from orchestrator.journal import JournalReader
from orchestrator.service.ratings import rate_alone

WORDS: Final = {"good": 1.0, "bad": 0.0}
ACCEPTED: Final = "good, bad, or a number from 0 (bad) to 1 (good)"


def rate(
    context: typer.Context,
    run: RunArgument,
    rating: Annotated[
        list[str], typer.Argument(metavar="[STEP] SCORE", help=f"The step, if it is only one; then {ACCEPTED}.")
    ],
    note: Annotated[str, typer.Option(metavar="TEXT", help="Why: kept with the rating.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Say how good a run was, or one step of it, when it has ended.

    Ratings are journaled with who gave them and when, and shown by `show` and `explain`. A run may be rated more than
    once.
    """
    *steps, score = rating
    if len(steps) > 1:
        raise InputError(Problem("SCORE", f"{' '.join(rating)!r} is more than a step and a score", "[STEP] SCORE"))
    given = RatingGiven(at=0.0, score=read_score(score), by=who(), step=steps[0] if steps else None, note=note)
    chosen = settings(context)
    with JournalReader.open_to_read(chosen.home) as journal:
        name = find_run(journal, run)
    told = _rated(chosen, name, given)
    if as_json:
        print_json(told)
    else:
        write(lambda: print(f"{told['step'] or name} rated {told['score']:g} by {one_line(told['by'])}"))


def read_score(text: str) -> float:
    """Return the score that a word or a number stands for. Raises InputError."""
    try:
        score = WORDS[text] if text in WORDS else float(text)
    except ValueError:
        score = -1.0
    if not 0.0 <= score <= 1.0:
        raise InputError(Problem("SCORE", f"{text!r} is no score", ACCEPTED))
    return score


def who() -> str:
    """Return the name of the user, or the number of one without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def _rated(chosen: Settings, run: str, given: RatingGiven) -> dict[str, Any]:
    if answers(chosen.home):
        with Daemon(chosen.home) as daemon:
            body = {"step": given.step, "score": given.score, "by": given.by, "note": given.note}
            return daemon.ask("POST", f"/v1/runs/{run}/ratings", json=body)
    made = asyncio.run(rate_alone(chosen.home, run, given))
    return {"run_id": run, "step": made.step, "score": made.score, "by": made.by, "note": made.note, "at": made.at}
