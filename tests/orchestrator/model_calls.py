"""Models that a test scripts, and attempts that ask them."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from orchestrator.engine.client.engine import Completion
from orchestrator.engine.contract import Generation
from orchestrator.steps.attempt import Attempt, OnText, ResolvedRole
from orchestrator.taskir import Step


@dataclass
class ModelCalls:
    """Counts and generates as two functions do."""

    count: Callable[[str, Sequence[tuple[str, str]]], Awaitable[int]]
    generate: Callable[[str, Generation, OnText | None], Awaitable[Completion]]


def attempt_of(step: Step, **fields_of_both: Any) -> Attempt:
    """Return an attempt at a step. Fields of its role are given beside its own."""
    role = {"model": "m", "system": "Do the task.", "max_tokens": 64}
    names = {field.name for field in fields(ResolvedRole)}
    role |= {name: value for name, value in fields_of_both.items() if name in names}
    own = {name: value for name, value in fields_of_both.items() if name not in names}
    return Attempt(step=step, role=ResolvedRole(**role), **own)
