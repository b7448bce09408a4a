"""Find the run that a command names: by its id, the beginning of it, or `last`."""

from collections.abc import Sequence
from typing import Annotated

import typer

from orchestrator.cli.complete import complete_run
from orchestrator.cli.errors import STATUS_CODES
from orchestrator.cli.settings import settings_so_far
from orchestrator.errors import InputError, Problem
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.journal.store import RunRow
from orchestrator.service.callers import user_key

LAST = "last"
CHAT_PREFIXES = ("chatcmpl-", "resp_")  # how the ids of answers of the API start
MOST_COMPLETED = 1000
RUN_HELP = "The run: its id, the beginning of it, or `last`, which is your last one."


def runs_named(context: typer.Context, incomplete: str) -> list[str]:
    """Return the ids of the newest runs that start like this."""
    with JournalReader.open_to_read(settings_so_far(context).home) as journal:
        return [row.run for row in journal.runs(MOST_COMPLETED) if row.run.startswith(incomplete)]


RunArgument = Annotated[str, typer.Argument(metavar="RUN", help=RUN_HELP, autocompletion=complete_run)]


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
    raise InputError(Problem("RUN", problem, f"{listed(matches or names)}, or `last`"))


def _last(rows: Sequence[RunRow], user: str) -> str:
    # Early versions did not record whose runs were: their owner is "".
    own = next((row.run for row in rows if row.owner in (user, "")), None)
    if own is None:
        problem = f"{user} has submitted none of the {len(rows)} runs"
        raise InputError(Problem("RUN", problem, f"{listed([row.run for row in rows])}: see `orchestrator runs`"))
    return own


def is_interrupted(journal: JournalReader, status: str) -> bool:
    """Return whether a run with this status has not ended, although no process carries it out."""
    return status not in STATUS_CODES and not journal.home.has_owner()


def listed(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
