"""Tell whoever watches a run what happens to it: its events, and text as it is written."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from orchestrator.events import Event, RunFinished


@dataclass(frozen=True, slots=True)
class EventUpdate:
    """An event of the run. It is in the journal."""

    event: Event


@dataclass(frozen=True, slots=True)
class Progress:
    """An attempt is writing (the frontdoor, where `step` is empty). It is not journaled; pieces may be left out."""

    step: str
    attempt: int
    output_tokens: int
    tokens_per_second: float
    text_tail: str


Update = EventUpdate | Progress


class Broadcast:
    """Hands updates to every watcher of one run. A watcher sees all events from the first one on."""

    def __init__(self, past: tuple[Event, ...] = ()) -> None:
        self._past: list[Event] = list(past)
        self._watchers: set[asyncio.Queue[Update]] = set()

    def publish(self, update: Update) -> None:
        """Hand an update out. Watchers that are slow hold nobody up."""
        if isinstance(update, EventUpdate):
            self._past.append(update.event)
        for queue in self._watchers:
            queue.put_nowait(update)

    async def watch(self) -> AsyncIterator[Update]:
        """Yield updates until the run has finished."""
        queue: asyncio.Queue[Update] = asyncio.Queue()
        for event in self._past:
            queue.put_nowait(EventUpdate(event))
        self._watchers.add(queue)
        try:
            while True:
                update = await queue.get()
                yield update
                if isinstance(update, EventUpdate) and isinstance(update.event, RunFinished):
                    return
        finally:
            self._watchers.discard(queue)
