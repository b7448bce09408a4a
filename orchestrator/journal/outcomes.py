"""What is kept of a run for learning when the run itself is removed: each attempt, who made it, and what came of it."""

from dataclasses import dataclass

from pydantic import TypeAdapter

from orchestrator.events import PromptDigests, RunStatus


@dataclass(frozen=True, slots=True)
class Rating:
    """What somebody said of a run or of a step, `at` in seconds since the epoch; `score` is from 0 to 1."""

    at: float
    score: float
    by: str
    note: str


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """One attempt at a step: what was to be done, who was chosen for it and why, and what came of it.

    `task_type` is None for a request in words. `started` is in seconds since the epoch, and `seconds` is how long the
    attempt took, None where its end was not seen. `outcome` is done, cancelled, interrupted or the kind of failure.
    `run_status` is what became of the run. `ratings` are those of the step, `run_ratings` those of the whole run.
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
