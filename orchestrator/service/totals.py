"""Count what happened since the daemon began, for metrics."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from orchestrator.events import (
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    Event,
    RunAccepted,
    RunFinished,
)

TYPICAL_SECONDS: Final = 5.0
"""Of a run, as long as none has ended."""


@dataclass(slots=True)
class Totals:
    """Counters since the start. `run_seconds` are those between acceptance and end, by status of the run.

    `places_left` counts how often a run gave its place back, and `place_seconds` how long they had been held.
    """

    accepted: int = 0
    refused: int = 0
    runs: Counter[str] = field(default_factory=Counter)
    run_seconds: Counter[str] = field(default_factory=Counter)
    attempts: Counter[tuple[str, str]] = field(default_factory=Counter)
    tokens: Counter[tuple[str, str]] = field(default_factory=Counter)
    places_left: int = 0
    place_seconds: float = 0.0

    @property
    def typical_seconds(self) -> float:
        """How long a run holds its place, on the mean."""
        return self.place_seconds / self.places_left if self.places_left else TYPICAL_SECONDS

    def leave(self, seconds: float) -> None:
        """Count a run that gives back its place after `seconds`."""
        self.places_left += 1
        self.place_seconds += seconds

    def take(self, event: Event, accepted: RunAccepted, models: dict[tuple[str, int], str]) -> None:
        """Count an event of a run. `models` keeps, for the run, which model does which attempt."""
        match event:
            case AttemptStarted(step=step, number=number, model=model):
                models[step, number] = model
            case AttemptGenerated(step=step, number=number, usage=usage):
                model = models.get((step, number), "")
                self.tokens[model, "prompt"] += usage.prompt_tokens
                self.tokens[model, "cached"] += usage.cached_tokens
                self.tokens[model, "output"] += usage.output_tokens
            case AttemptSucceeded(step=step, number=number):
                self.attempts[models.pop((step, number), ""), "done"] += 1
            case AttemptFailed(step=step, number=number, failure=failure):
                self.attempts[models.pop((step, number), ""), failure.kind.value] += 1
            case RunFinished(status=status):
                self.runs[status] += 1
                self.run_seconds[status] += event.at - accepted.at  # type: ignore[assignment]
