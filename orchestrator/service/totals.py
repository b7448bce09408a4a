"""Count events since the daemon started, for metrics."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from orchestrator.task.events import (
    AttemptFailed,
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    Event,
    RunAccepted,
    RunFinished,
)

DEFAULT_RUN_SECONDS: Final = 5.0
"""How long a run is assumed to take as long as none has ended."""


@dataclass(slots=True)
class Totals:
    """Counters since the daemon started."""

    accepted: int = 0
    """Runs that were accepted."""
    refused: int = 0
    """Runs that were refused because too many waited."""
    runs: Counter[str] = field(default_factory=Counter)
    """Runs that have ended, by status."""
    doubtful: int = 0
    """Runs that were done with a doubtful answer."""
    run_seconds: Counter[str] = field(default_factory=Counter)
    """The seconds from acceptance to end of the runs that have ended, by status."""
    attempts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Attempts that have ended, by model and outcome."""
    tokens: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Tokens, by model and kind: prompt, cached or output."""
    executions: int = 0
    """How often a run was executed until it ended or was interrupted."""
    execution_seconds: float = 0.0
    """How long these executions took together."""

    @property
    def typical_seconds(self) -> float:
        """The mean duration of an execution."""
        return self.execution_seconds / self.executions if self.executions else DEFAULT_RUN_SECONDS

    def count_execution(self, seconds: float) -> None:
        """Count an execution of a run that has ended after `seconds`."""
        self.executions += 1
        self.execution_seconds += seconds

    def count(self, event: Event, accepted: RunAccepted, models: dict[tuple[str, int], str]) -> None:
        """Count an event of a run.

        `models` maps the attempts of the run that are open, by step and number, to their models. It is kept up to date.
        """
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
            case RunFinished(status=status, doubt=doubt):
                self.runs[status] += 1
                self.doubtful += bool(doubt)
                self.run_seconds[status] += event.at - accepted.at  # type: ignore[assignment]
