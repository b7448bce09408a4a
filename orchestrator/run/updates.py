"""Publish what happens to a run to those who watch it: its events, and the progress of its attempts between them."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from functools import cached_property

from orchestrator.run.journal.codec import encode_event
from orchestrator.task.events import AttemptGenerated, Event, RunFinished


@dataclass(frozen=True)
class EventUpdate:
    """An event of the run, which is in the journal."""

    event: Event
    number: int = 0
    """Its number in the run, which counts from 1; 0 before it was published."""

    @cached_property
    def body(self) -> str:
        """The event as JSON, in the form of the journal. It is encoded once for all watchers."""
        return encode_event(self.event)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an attempt, or the plan, has come. It is not journaled, and watchers may miss some of it.

    What it waits for is in the fields from `loading` on, of which most are empty at any time.
    """

    step: str
    """The step; empty for the plan."""
    attempt: int
    output_tokens: int
    tokens_per_second: float
    text_tail: str
    """The last characters that were written."""
    thinking: bool = False
    """Whether they are thoughts, and the answer has not begun."""
    loading: str = ""
    """The model that has to be loaded first."""
    ahead: int | None = None
    """How many other requests an engine takes first; None if this one is not in its queue."""
    read_tokens: int = 0
    prompt_tokens: int = 0
    """How many tokens the prompt that is being read has, and how many of them are read; 0 if none is."""
    gates: tuple[str, ...] = ()
    """The gates that check what was written."""
    waits_for_core: bool = False
    """Whether all these gates wait for a core, or for their turn in the sandbox."""

    @property
    def wait(self) -> str:
        """What it waits for, in words; empty while text is being written."""
        if self.loading:
            reason = f"waiting until {self.loading} is loaded"
        elif self.ahead is not None:
            reason = f"in the queue, {self.ahead} ahead" if self.ahead else "next in the queue"
        elif self.prompt_tokens:
            reason = f"read {self.read_tokens} of {self.prompt_tokens} tokens"
        else:
            reason = "waiting for a core" if self.waits_for_core else ""
        checks = f"checking: {', '.join(self.gates)}" if self.gates else ""
        return ", ".join(filter(None, (checks, reason)))


Update = EventUpdate | Progress


class Watcher:
    """What one watcher of a run has not seen yet: only the latest progress of each attempt is kept for it."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self._progress: dict[tuple[str, int], Progress] = {}

    def take(self, update: Update) -> None:
        """Take note of an update. An event about an attempt replaces the progress of the attempt so far."""
        if isinstance(update, Progress):
            self._progress[update.step, update.attempt] = update
        elif self._progress:
            attempt = getattr(update.event, "step", ""), getattr(update.event, "number", 0)
            progress = self._progress.get(attempt)
            # Gates begin before it is published that the text is complete.
            if progress is not None and not (progress.gates and isinstance(update.event, AttemptGenerated)):
                del self._progress[attempt]
        self.wake.set()

    def progress(self) -> Progress | None:
        """Return a progress that the watcher has not seen, and forget it; None if there is none."""
        return self._progress.pop(next(iter(self._progress))) if self._progress else None


class Broadcast:
    """Hands updates to every watcher of one run. A watcher sees all events from the one that it begins with.

    All watchers get the same object for an event, so that it is encoded once however many there are.
    """

    def __init__(self, past: Iterable[Event] = ()) -> None:
        self._past = [EventUpdate(event, number) for number, event in enumerate(past, start=1)]
        self._watchers: set[Watcher] = set()
        self._closed = False

    @property
    def events(self) -> int:
        """How many events were published."""
        return len(self._past)

    def publish(self, update: Update) -> None:
        """Hand out an update. Slow watchers do not delay this, and take no more memory than others."""
        if isinstance(update, EventUpdate):
            self._past.append(EventUpdate(update.event, len(self._past) + 1))
        for watcher in self._watchers:
            watcher.take(update)

    def close(self) -> None:
        """Let every watcher end when it has seen all events: nothing more will be published."""
        self._closed = True
        for watcher in self._watchers:
            watcher.wake.set()

    async def watch(self, after: int = 0) -> AsyncGenerator[Update, None]:
        """Yield the events after number `after`, and progress, until the run has finished or this is closed."""
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
        """Return whether nothing comes after event number `place`."""
        if place < len(self._past):
            return False
        return self._closed or (place > 0 and isinstance(self._past[-1].event, RunFinished))
