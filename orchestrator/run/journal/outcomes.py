"""The outcomes of attempts, which are kept for learning when their runs are removed."""

from dataclasses import dataclass
from functools import cache

from pydantic import TypeAdapter

from orchestrator.task.events import PromptDigests
from orchestrator.task.modes import RunStatus


@dataclass(frozen=True, slots=True)
class Rating:
    at: float  # seconds since the epoch
    score: float  # from 0 (bad) to 1 (good)
    by: str
    note: str


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """One attempt at a step: the task, the choice of role and model with its reason, and the outcome."""

    run: str
    task_type: str | None  # None for a request in words
    step: str
    action: str
    attempt: int
    role: str
    persona: str | None
    model: str
    reason: str
    propensity: float
    prompts: PromptDigests
    started: float  # seconds since the epoch
    seconds: float | None  # None if the end of the attempt was not journaled
    outcome: str  # done, cancelled, interrupted or the kind of failure
    prompt_tokens: int
    output_tokens: int
    run_status: RunStatus
    ratings: tuple[Rating, ...] = ()  # those of the step
    run_ratings: tuple[Rating, ...] = ()  # those of the whole run


@cache  # built at the first use, which most commands never reach
def _outcomes() -> TypeAdapter[AttemptOutcome]:
    return TypeAdapter(AttemptOutcome)


def encode_outcome(outcome: AttemptOutcome) -> str:
    return _outcomes().dump_json(outcome).decode()


def decode_outcome(body: str) -> AttemptOutcome:
    """Return the outcome that `encode_outcome` wrote. Raises `ValueError` for anything else."""
    return _outcomes().validate_json(body)
