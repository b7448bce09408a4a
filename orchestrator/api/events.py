"""Tell what happens to a run as server-sent events, from any event on.

An event's id is its number in the run, from 1; its name is `event`, its data the event as the journal has it. In
between come `progress` without id: how far an attempt is. A comment is sent while nothing happens.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import asdict
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from orchestrator.api.access import TheService
from orchestrator.api.errors import DOCUMENTED
from orchestrator.journal.codec import encode_event
from orchestrator.runs.updates import EventUpdate, Update

SILENCE_SECONDS: Final = 15.0
STREAM: Final = "text/event-stream"
HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

router = APIRouter(prefix="/v1/runs", tags=["runs"], responses=dict(DOCUMENTED))


@router.get(
    "/{run}/events",
    response_class=StreamingResponse,
    responses={200: {"content": {STREAM: {"schema": {"type": "string"}}}, "description": "Server-sent events."}},
)
async def events(
    run: str,
    service: TheService,
    after: Annotated[int, Query(ge=0, le=1 << 53, description="Begin behind this event.")] = 0,
    last_event_id: Annotated[str | None, Header(description="As `after`, which it overrides.")] = None,
    follow: Annotated[bool, Query(description="false: end when all that has happened was told.")] = True,
) -> StreamingResponse:
    """Stream what has happened to a run, and what happens, until it has ended."""
    row = await service.row(run)
    place = _number(last_event_id, after)
    if not follow and row.finished is None:
        return EventStream(_past(service, run, place))
    return EventStream(_lines(service.watch(run, place)))


class EventStream(StreamingResponse):
    """Sends server-sent events as they come. `on_end` is called at the end, also where nothing could be sent."""

    def __init__(self, lines: AsyncIterator[str], on_end: Callable[[], None] = lambda: None) -> None:
        super().__init__(lines, media_type=STREAM, headers=HEADERS)
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything, or as much as the client wants."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()


def message(data: Any, name: str | None = None, number: int | None = None) -> str:
    """Return one server-sent event. `data` is JSON already, or made into it."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    head = "" if name is None else f"event: {name}\n"
    place = "" if number is None else f"id: {number}\n"
    return f"{place}{head}data: {text}\n\n"


async def with_comments(source: AsyncGenerator[str, None], seconds: float = SILENCE_SECONDS) -> AsyncIterator[str]:
    """Yield what `source` does, and a comment after each `seconds` of silence, so that nobody thinks we are gone."""
    # No task group: it cannot be left by the end of a generator. The one task is awaited here, whatever happens.
    following = asyncio.create_task(_next(source))
    try:
        while True:
            done, _ = await asyncio.wait([following], timeout=seconds)
            if not done:
                yield ": still here\n\n"
            elif (line := following.result()) is None:
                return
            else:
                following = asyncio.create_task(_next(source))
                yield line
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await source.aclose()


async def _next(source: AsyncGenerator[str, None]) -> str | None:
    return await anext(source, None)


def _lines(updates: AsyncGenerator[Update, None]) -> AsyncIterator[str]:
    async def told() -> AsyncGenerator[str, None]:
        async with aclosing(updates):
            async for update in updates:
                yield _told(update)

    return with_comments(told())


def _told(update: Update) -> str:
    if isinstance(update, EventUpdate):
        return message(update.body, "event", update.number)
    return message(asdict(update), "progress")


async def _past(service: TheService, run: str, after: int) -> AsyncIterator[str]:
    found = await asyncio.to_thread(service.orchestrator.journal.events, run)
    for number, (_, event) in enumerate(found, start=1):
        if number > after:
            yield message(encode_event(event), "event", number)


def _number(text: str | None, otherwise: int) -> int:
    """Return the number of an event that a client names, as far as it is one."""
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) < 16
    return int(text or 0) if is_number else otherwise
