"""Watch over a run that has a place: count what it takes until it has ended, and cancel it when that is too much."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from orchestrator.daemon.orchestrator import Orchestrator
from orchestrator.daemon.quota import Spending, seconds_at_work
from orchestrator.daemon.replay import accepted_in
from orchestrator.daemon.totals import Totals
from orchestrator.daemon.updates import EventUpdate
from orchestrator.events import Event


async def oversee(orchestrator: Orchestrator, run: str, past: Sequence[Event], totals: Totals) -> None:
    """Watch over a run to its end. `past` is what had happened before it was taken up now, its acceptance first."""
    accepted = accepted_in(past)
    limits, spending, models = accepted.limits, Spending(), dict[tuple[str, int], str]()
    timer = None
    if limits.seconds is not None:
        left = limits.seconds - seconds_at_work(past)
        timer = asyncio.create_task(_end_after(orchestrator, run, left, limits.seconds))
    over = False
    try:
        async with aclosing(orchestrator.watch(run)) as updates:
            async for update in updates:
                if not isinstance(update, EventUpdate):
                    continue
                spending.take(update.event, orchestrator.journal.objects.size)
                if update.number > len(past):  # the daemon that ran it before has counted the others
                    totals.take(update.event, accepted, models)
                if not over and (excess := spending.excess(limits)) is not None:
                    over = True
                    await orchestrator.cancel(run, reason=excess)
    finally:
        if timer is not None:
            timer.cancel()


async def _end_after(orchestrator: Orchestrator, run: str, left: float, limit: float) -> None:
    await asyncio.sleep(left)
    await orchestrator.cancel(run, reason=f"quota: not done within {limit:g} s")
