"""Scripted models for tests, and attempts that use them."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from orchestrator.engine.client.engine import Completion, OnText
from orchestrator.engine.contract import Generation, Message, Priority
from orchestrator.registry.prompts import prompt_set
from orchestrator.run.steps.attempt import Attempt
from orchestrator.run.steps.role import ResolvedRole
from orchestrator.task.taskir.models import Step


async def count_characters(model: str, messages: Sequence[Message]) -> int:
    """Return the number of characters, as if each were a token."""
    return sum(len(message.content) for message in messages)


@dataclass
class ModelCalls:
    """Implements `Models` with two functions: one counts tokens, one generates."""

    counter: Callable[[str, Sequence[Message]], Awaitable[int]]
    generator: Callable[[str, Generation, OnText | None], Awaitable[Completion]]

    async def count(self, model: str, messages: Sequence[Message], priority: Priority = "interactive") -> int:
        return await self.counter(model, messages)

    async def generate(self, model: str, request: Generation, on_text: OnText | None = None) -> Completion:
        return await self.generator(model, request, on_text)


def attempt_of(step: Step, **fields_of_both: Any) -> Attempt:
    """Return an attempt at a step. Fields of `ResolvedRole` and of `Attempt` are given side by side.

    The prompts are the short ones of the embedded models, unless others are given.
    """
    role: dict[str, Any] = {"model": "m", "system": "Do the task.", "prompts": prompt_set("tiny"), "max_tokens": 64}
    names = {field.name for field in fields(ResolvedRole)}
    role |= {name: value for name, value in fields_of_both.items() if name in names}
    own = {name: value for name, value in fields_of_both.items() if name not in names}
    return Attempt(step=step, role=ResolvedRole(**role), **own)
