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
from orchestrator.task.reuse import Reuse

DEFAULT_RUN_SECONDS: Final = 5.0  # assumed as long as no run has ended


@dataclass(slots=True)
class Totals:
    accepted: int = 0  # runs
    refused: int = 0  # runs, because too many waited
    runs: Counter[str] = field(default_factory=Counter)  # that have ended, by status
    doubtful: int = 0  # runs that were done with a doubtful answer
    run_seconds: Counter[str] = field(default_factory=Counter)  # from acceptance to end, by status
    attempts: Counter[tuple[str, str]] = field(default_factory=Counter)  # that have ended, by model and outcome
    tokens: Counter[tuple[str, str]] = field(default_factory=Counter)  # by model and kind: prompt, cached or output
    reuse: dict[str, Reuse] = field(default_factory=dict)  # of prompts, by model
    exports: Counter[str] = field(default_factory=Counter)  # of runs to a collector, by outcome
    executions: int = 0  # of runs, until they ended or were interrupted
    execution_seconds: float = 0.0

    @property
    def typical_seconds(self) -> float:
        """The mean duration of an execution."""
        return self.execution_seconds / self.executions if self.executions else DEFAULT_RUN_SECONDS

    def count_execution(self, seconds: float) -> None:
        self.executions += 1
        self.execution_seconds += seconds

    def count(self, event: Event, accepted: RunAccepted, models: dict[tuple[str, int], str]) -> None:
        """Count an event of a run. `models` maps its open attempts, by step and number, to models, and is updated."""
        match event:
            case AttemptStarted(step=step, number=number, model=model):
                models[step, number] = model
            case AttemptGenerated(step=step, number=number, usage=usage):
                model = models.get((step, number), "")
                self.tokens[model, "prompt"] += usage.prompt_tokens
                self.tokens[model, "cached"] += usage.cached_tokens
                self.tokens[model, "output"] += usage.output_tokens
                self.reuse[model] = self.reuse.get(model, Reuse()) + usage.reuse
            case AttemptSucceeded(step=step, number=number):
                self.attempts[models.pop((step, number), ""), "done"] += 1
            case AttemptFailed(step=step, number=number, failure=failure):
                self.attempts[models.pop((step, number), ""), failure.kind.value] += 1
            case RunFinished(status=status, doubt=doubt):
                self.runs[status] += 1
                self.doubtful += bool(doubt)
                self.run_seconds[status] += event.at - accepted.at  # type: ignore[assignment]
