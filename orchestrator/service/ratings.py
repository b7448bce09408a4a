"""Journal how users and programs rate runs that have ended, and chats."""

import asyncio
from typing import Final

from orchestrator.errors import InputError, Problem
from orchestrator.run.journal.chats import ChatRated
from orchestrator.run.journal.journal import Journal
from orchestrator.run.record.cache import ViewCache
from orchestrator.service.errors import Conflict
from orchestrator.task.events import RatingGiven

MAX_AUTHOR_LENGTH: Final = 200  # characters of the name of whoever rates
MAX_NOTE_LENGTH: Final = 10_000  # characters


async def rate(journal: Journal, views: ViewCache, run: str, rating: RatingGiven) -> None:
    """Journal a rating of a run, or of the step that it names. It is durable when this returns.

    Raises UnknownRun, Conflict if the run has not ended, and InputError for an unknown step, or for a score, an author
    or a note beyond the limits.
    """
    _check_limits(rating.score, rating.by, rating.note)
    await asyncio.to_thread(_check, views, run, rating.step)
    await journal.append(run, [rating])


async def rate_chat(journal: Journal, rating: ChatRated) -> None:
    """Journal a rating of a chat whose model the router chose. It is durable when this returns.

    Raises UnknownChat, and InputError for a score, an author or a note beyond the limits.
    """
    _check_limits(rating.score, rating.by, rating.note)
    await journal.find_chat(rating.chat)
    await journal.append_chat_event(rating)


def _check_limits(score: float, by: str, note: str) -> None:
    problems = []
    if not 0.0 <= score <= 1.0:
        problems.append(Problem("score", f"is {score:g}", "a number from 0 (bad) to 1 (good)"))
    if not 1 <= len(by) <= MAX_AUTHOR_LENGTH:
        problems.append(Problem("by", f"has {len(by)} characters", f"1 to {MAX_AUTHOR_LENGTH}"))
    if len(note) > MAX_NOTE_LENGTH:
        problems.append(Problem("note", f"has {len(note)} characters", f"at most {MAX_NOTE_LENGTH}"))
    if problems:
        raise InputError(*problems)


def _check(views: ViewCache, run: str, step: str | None) -> None:
    with views.view(run) as view:
        if not view.ended:
            raise Conflict(f"run {run} has not ended: {view.status}; accepted: a run that has ended")
        if step is not None:
            view.check_step(step)
