"""Count what a run takes, and say when it is more than it may."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from orchestrator.daemon.configuration import RunSettings
from orchestrator.events import (
    AttemptFailed,
    AttemptGenerated,
    AttemptSucceeded,
    Event,
    PlanFinished,
    ReplanFinished,
    RunBegun,
    RunLimits,
    StepGathered,
    Usage,
)

N = TypeVar("N", int, float)


def bounded(asked: RunLimits, settings: RunSettings) -> RunLimits:
    """Return the limits of a run that asks for some: nobody gets more than the settings allow."""
    return RunLimits(
        tokens=_least(asked.tokens, settings.max_tokens),
        seconds=_least(asked.seconds, settings.max_seconds),
        bytes=_least(asked.bytes, settings.max_bytes),
    )


def _least(asked: N | None, most: N) -> N | None:
    return min((number for number in (asked, most or None) if number is not None), default=None)


@dataclass(slots=True)
class Spending:
    """What a run has taken so far: tokens of prompts and answers, and bytes of artifacts."""

    tokens: int = 0
    bytes: int = 0

    def take(self, event: Event, size: Callable[[str], int]) -> None:
        """Count what an event says. `size` returns the bytes of an object."""
        match event:
            case AttemptGenerated(usage=usage) | PlanFinished(usage=usage) | ReplanFinished(usage=usage):
                self.tokens += tokens_of(usage)
            case AttemptFailed(gates=gates):
                self.tokens += sum(gate.tokens for gate in gates)
            case AttemptSucceeded(outputs=outputs, gates=gates):
                self.tokens += sum(gate.tokens for gate in gates)
                self.bytes += sum(map(size, outputs.values()))
            case StepGathered(outputs=outputs):
                self.bytes += sum(map(size, outputs.values()))

    def excess(self, limits: RunLimits) -> str | None:
        """Return what the run has too much of, or None."""
        if limits.tokens is not None and self.tokens > limits.tokens:
            return f"quota: {self.tokens} tokens used, {limits.tokens} allowed"
        if limits.bytes is not None and self.bytes > limits.bytes:
            return f"quota: {self.bytes} bytes of artifacts, {limits.bytes} allowed"
        return None


def seconds_at_work(events: Iterable[Event]) -> float:
    """Return for how long a run was at work, by its events: from each time that it began to the last that it did."""
    total, last = 0.0, 0.0
    begun: float | None = None
    for event in events:
        if isinstance(event, RunBegun):
            total, begun, last = total + _passed(begun, last), event.at, event.at
        last = max(last, event.at)
    return total + _passed(begun, last)


def _passed(begun: float | None, last: float) -> float:
    return 0.0 if begun is None else max(0.0, last - begun)


def tokens_of(usage: Usage) -> int:
    """Return the tokens of a prompt and its answer."""
    return usage.prompt_tokens + usage.output_tokens
