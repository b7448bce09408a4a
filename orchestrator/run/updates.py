"""Publish the events of a run, and the progress of its attempts between them, to its watchers."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from orchestrator.task.events import AttemptGenerated, Event, RunFinished, encode_event


@dataclass(frozen=True)
class EventUpdate:
    event: Event
    number: int = 0  # in the run, from 1; 0 before it is published

    @cached_property
    def body(self) -> str:
        """The event as JSON, in the form of the journal. It is encoded once for all watchers."""
        return encode_event(self.event)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an attempt, or the plan, has come. It is not journaled, and watchers may miss some of it."""

    step: str  # empty for the plan
    attempt: int
    output_tokens: int
    tokens_per_second: float
    text_tail: str
    thinking: bool = False  # whether the tail is reasoning, and the answer has not started
    nodes: tuple[str, ...] = ()  # that its requests have been with so far; empty for this machine alone
    # From here on: what it waits for. Most of these fields are empty at any time.
    loading: str = ""  # the model that has to be loaded first
    ahead: int | None = None  # how many other requests an engine takes first; None if it is not queued
    read_tokens: int = 0
    prompt_tokens: int = 0  # of the prompt in prefill; 0 if none is
    gates: tuple[str, ...] = ()  # the gates that check what was written
    gates_since: tuple[float, ...] = ()  # when each of them started, by the clock of events
    waits_for_core: bool = False  # whether all of them wait for a core, or for their turn in the sandbox

    @property
    def wait(self) -> str:
        """What it waits for, in words; empty while text is being written."""
        if self.loading:
            reason = f"waiting until {self.loading} is loaded"
        elif self.ahead is not None:
            reason = f"in the queue, {self.ahead} ahead" if self.ahead else "next in the queue"
        elif self.prompt_tokens:
            reason = f"read {self.read_tokens} of {self.prompt_tokens} tokens"
        elif self.nodes and not (self.output_tokens or self.gates):  # a server says nothing before that
            reason = "waiting for the first token"
        else:
            reason = "waiting for a core" if self.waits_for_core else ""
        checks = f"checking: {', '.join(self.gates)}" if self.gates else ""
        return ", ".join(filter(None, (checks, reason)))

    @property
    def words(self) -> str:
        """What it waits for, or how much is written."""
        if self.wait:
            return self.wait
        rate = f", {self.tokens_per_second:.0f} tok/s" if self.tokens_per_second > 0 else ""
        return f"being written: {self.output_tokens} token{'' if self.output_tokens == 1 else 's'} so far{rate}"

    def to_json(self, now: float) -> dict[str, Any]:
        """Return it as a JSON object, with its words and how many seconds each of its gates has taken until `now`."""
        seconds = {gate: now - since for gate, since in zip(self.gates, self.gates_since, strict=True)}
        return asdict(self) | {"words": self.words, "gate_seconds": seconds}


Update = EventUpdate | Progress


class Watcher:
    """What one watcher of a run has not seen yet. Only the latest progress of each attempt is kept."""

    def __init__(self, earlier: "Watcher | None" = None) -> None:
        """A new watcher has not seen either what `earlier` has not."""
        self.wake = asyncio.Event()
        self._progress: dict[tuple[str, int], Progress] = {} if earlier is None else dict(earlier._progress)

    def take(self, update: Update) -> None:
        """Apply an update. An event about an attempt replaces the progress of the attempt so far."""
        if isinstance(update, Progress):
            self._progress[update.step, update.attempt] = update
        elif self._progress:
            attempt = getattr(update.event, "step", ""), getattr(update.event, "number", 0)
            progress = self._progress.get(attempt)
            # Gates start before the event that the text is complete is published.
            if progress is not None and not (progress.gates and isinstance(update.event, AttemptGenerated)):
                del self._progress[attempt]
        self.wake.set()

    def progress(self) -> Progress | None:
        """Return a progress that the watcher has not seen, and forget it; None if there is none."""
        return self._progress.pop(next(iter(self._progress))) if self._progress else None

    def progress_of(self, step: str) -> Progress | None:
        """Return the latest progress of a step that the watcher has not seen; None if there is none."""
        unseen = (progress for progress in self._progress.values() if progress.step == step)
        return max(unseen, key=lambda progress: progress.attempt, default=None)


class Broadcast:
    """Hands updates to every watcher of one run."""

    def __init__(self, past: Iterable[Event] = ()) -> None:
        self._past = [EventUpdate(event, number) for number, event in enumerate(past, start=1)]
        self._watchers: set[Watcher] = set()
        # It is shown nothing, so it has the progress of all attempts that run, for those who come later.
        self._blind = Watcher()
        self._closed = False

    @property
    def events(self) -> int:
        return len(self._past)

    def publish(self, update: Update) -> None:
        """Hand out an update, without waiting for slow watchers."""
        if isinstance(update, EventUpdate):
            # The same object for all watchers, so that its JSON is encoded once.
            self._past.append(EventUpdate(update.event, len(self._past) + 1))
        self._blind.take(update)
        for watcher in self._watchers:
            watcher.take(update)

    def progress(self, step: str) -> Progress | None:
        """Return the progress of a step that a new watcher would get; None if there is none."""
        return self._blind.progress_of(step)

    def close(self) -> None:
        """End every watcher when it has seen all events: nothing more will be published."""
        self._closed = True
        for watcher in self._watchers:
            watcher.wake.set()

    async def watch(self, after: int = 0) -> AsyncGenerator[Update, None]:
        """Yield the events after number `after`, and progress, until the run has finished or this is closed.

        The first progress of an attempt that runs is the latest that was published.
        """
        watcher, place = Watcher(self._blind), min(after, len(self._past))
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
        if place < len(self._past):
            return False
        return self._closed or (place > 0 and isinstance(self._past[-1].event, RunFinished))
