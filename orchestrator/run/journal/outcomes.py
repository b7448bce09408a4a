"""The outcomes of attempts, which are kept for learning when their runs are removed."""

from dataclasses import dataclass

from pydantic import TypeAdapter

from orchestrator.task.events import PromptDigests, RunStatus


@dataclass(frozen=True, slots=True)
class Rating:
    """A rating of a run or of a step."""

    at: float
    """When it was given, in seconds since the epoch."""
    score: float
    """From 0 (bad) to 1 (good)."""
    by: str
    """Who gave it."""
    note: str
    """The reason, which may be empty."""


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """One attempt at a step: what was to be done, which role and model were chosen and why, and how it ended.

    `task_type` is None for a request in words. `started` is in seconds since the epoch, and `seconds` is how long the
    attempt took, or None if its end was not journaled. `outcome` is done, cancelled, interrupted or the kind of
    failure. `run_status` is how the run ended. `ratings` are those of the step, `run_ratings` those of the whole run.
    """

    run: str
    task_type: str | None
    step: str
    action: str
    attempt: int
    role: str
    persona: str | None
    model: str
    reason: str
    propensity: float
    prompts: PromptDigests
    started: float
    seconds: float | None
    outcome: str
    prompt_tokens: int
    output_tokens: int
    run_status: RunStatus
    ratings: tuple[Rating, ...] = ()
    run_ratings: tuple[Rating, ...] = ()


_OUTCOMES: TypeAdapter[AttemptOutcome] = TypeAdapter(AttemptOutcome)


def encode_outcome(outcome: AttemptOutcome) -> str:
    """Return the outcome as one JSON object."""
    return _OUTCOMES.dump_json(outcome).decode()


def decode_outcome(body: str) -> AttemptOutcome:
    """Return the outcome that `encode_outcome` wrote. Raises `ValueError` for anything else."""
    return _OUTCOMES.validate_json(body)
