"""Stream the events of a run as server-sent events: `GET /v1/runs/{run}/events`.

An event of the run is named `event`; its id is its number in the run, from 1, and its data the journal's encoding.
`Last-Event-ID` (or `after`) asks for the events after that one. `progress` events, without an id, say how much of an
attempt is written, or what it waits for.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from orchestrator.api.dependencies import ServiceDep
from orchestrator.api.errors import DOCUMENTED
from orchestrator.api.sse import DOCUMENTED_STREAM, Events, EventStream, format_event
from orchestrator.run.journal.errors import UnknownRun
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.updates import EventUpdate, Update
from orchestrator.task.events import encode_event

PAGE_EVENTS: Final = 100  # read from the journal at a time, and held for as long as a client reads nothing

router = APIRouter(prefix="/v1/runs", tags=["runs"], responses=dict(DOCUMENTED))


@router.get(
    "/{run}/events",
    response_class=StreamingResponse,
    responses={200: {**DOCUMENTED_STREAM, "description": "Server-sent events."}},
)
async def events(
    run: str,
    service: ServiceDep,
    after: Annotated[int, Query(ge=0, le=1 << 53, description="Begin after the event with this number.")] = 0,
    last_event_id: Annotated[str | None, Header(description="As `after`, which it overrides.")] = None,
    follow: Annotated[bool, Query(description="false: end after what has happened so far.")] = True,
) -> EventStream:
    """Stream what has happened to a run, and then what happens until it has ended."""
    row = await service.row(run)
    number = event_number(last_event_id, after)
    if row.finished is not None or not follow:
        return EventStream(journaled_events(service.orchestrator.journal, run, number))
    return EventStream(_formatted(service.watch(run, number)))


async def _formatted(updates: AsyncGenerator[Update, None]) -> Events:
    async with aclosing(updates):
        async for update in updates:
            if isinstance(update, EventUpdate):
                yield format_event(update.body, "event", update.number)
            else:
                yield format_event(asdict(update), "progress")


async def journaled_events(journal: JournalReader, run: str, after: int) -> Events:
    """Yield the journaled events of a run after number `after`."""
    number, last = after, 0  # in the run, and in the journal
    while True:
        try:
            page = await asyncio.to_thread(journal.events, run, last, skip=0 if last else after, limit=PAGE_EVENTS)
        except UnknownRun:  # it was deleted in the meantime
            return
        for _, event in page:
            number += 1
            yield format_event(encode_event(event), "event", number)
        if len(page) < PAGE_EVENTS:
            return
        last = page[-1][0]


def event_number(text: str | None, otherwise: int) -> int:
    """Return the event number in a `Last-Event-ID` header, or `otherwise` if there is none."""
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) < 16
    return int(text or 0) if is_number else otherwise
