"""Take in what users and programs say of runs that have ended."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path

from orchestrator.events import RatingGiven
from orchestrator.history.cache import ViewCache
from orchestrator.journal import Journal
from orchestrator.service.errors import Conflict


async def rate(journal: Journal, views: ViewCache, run: str, rating: RatingGiven) -> None:
    """Journal a rating of a run, or of the step of it that the rating names. It is durable when this returns.

    Raises UnknownRun, InputError for a step that the run does not have, and Conflict for a run that has not ended.
    """
    await asyncio.to_thread(_check, views, run, rating.step)
    await journal.append(run, [rating])


async def rate_alone(home: Path, run: str, rating: RatingGiven) -> RatingGiven:
    """Do the same without a daemon, and return the rating with the time by which it was journaled.

    Raises HomeLocked while someone owns the state folder, JournalError, and what `rate` raises.
    """
    with Journal.open(home) as journal:
        timed = replace(rating, at=max(time.time(), journal.last_time()))  # the clock may have been set back
        await rate(journal, ViewCache(journal), run, timed)
    return timed


def _check(views: ViewCache, run: str, step: str | None) -> None:
    with views.view(run) as view:
        if not view.ended:
            raise Conflict(f"run {run} has not ended: {view.status}; accepted: a run that has ended")
        if step is not None:
            view.check_step(step)
