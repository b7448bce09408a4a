"""Tell whoever watches a run what happens to it: its events, and text as it is written."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from functools import cached_property

from orchestrator.events import Event, RunFinished
from orchestrator.journal.codec import encode_event


@dataclass(frozen=True)
class EventUpdate:
    """An event of the run. It is in the journal. Watchers get its `number` in the run too, which counts from 1."""

    event: Event
    number: int = 0

    @cached_property
    def body(self) -> str:
        """The event as JSON, as the journal has it. All watchers share it."""
        return encode_event(self.event)


@dataclass(frozen=True, slots=True)
class Progress:
    """An attempt is writing (the frontdoor, where `step` is empty). It is not journaled; pieces may be left out."""

    step: str
    attempt: int
    output_tokens: int
    tokens_per_second: float
    text_tail: str


Update = EventUpdate | Progress


class Watcher:
    """What one watcher of a run has not seen of its attempts: the latest progress of each, however slow it is."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self._progress: dict[tuple[str, int], Progress] = {}

    def take(self, update: Update) -> None:
        """Note an update. An event about an attempt makes its progress of no interest."""
        if isinstance(update, Progress):
            self._progress[update.step, update.attempt] = update
        else:
            self._progress.pop((getattr(update.event, "step", ""), getattr(update.event, "number", 0)), None)
        self.wake.set()

    def progress(self) -> Progress | None:
        """Return a progress that was not seen, and forget it."""
        return self._progress.pop(next(iter(self._progress))) if self._progress else None


class Broadcast:
    """Hands updates to every watcher of one run. A watcher sees all events, from the first one or another one on.

    Watchers get the very same update of an event, so that it is encoded once however many there are.
    """

    def __init__(self, past: Iterable[Event] = ()) -> None:
        self._past = [EventUpdate(event, number) for number, event in enumerate(past, start=1)]
        self._watchers: set[Watcher] = set()
        self._closed = False

    @property
    def events(self) -> int:
        """How many events it knows of."""
        return len(self._past)

    def publish(self, update: Update) -> None:
        """Hand an update out. Watchers that are slow hold nobody up, and take no more memory than others."""
        if isinstance(update, EventUpdate):
            self._past.append(EventUpdate(update.event, len(self._past) + 1))
        for watcher in self._watchers:
            watcher.take(update)

    def close(self) -> None:
        """Let the watchers end where they are: nothing more will be published."""
        self._closed = True
        for watcher in self._watchers:
            watcher.wake.set()

    async def watch(self, after: int = 0) -> AsyncGenerator[Update, None]:
        """Yield updates from behind event number `after` on, until the run has finished or this is closed."""
        watcher, place = Watcher(), min(after, len(self._past))
        self._watchers.add(watcher)
        try:
            while not self._ended(place):
                if place < len(self._past):
                    place += 1
                    yield self._past[place - 1]
                elif (progress := watcher.progress()) is not None:
                    yield progress
                else:
                    watcher.wake.clear()
                    await watcher.wake.wait()
        finally:
            self._watchers.discard(watcher)

    def _ended(self, place: int) -> bool:
        """Say whether there is nothing more to tell behind event number `place`."""
        if place < len(self._past):
            return False
        return self._closed or (place > 0 and isinstance(self._past[-1].event, RunFinished))
