"""Collect what models think while they work on an attempt or a plan, for the journal."""

from collections.abc import Sequence
from typing import Protocol

from orchestrator.engine.client.engine import Completion, OnText
from orchestrator.engine.contract import Generation, Message, Priority
from orchestrator.run.steps.attempt import Models


class ThinkingModels(Models, Protocol):
    """Models whose thoughts can be followed: the pool, as runs see it."""

    async def generate(
        self, model: str, request: Generation, on_text: OnText | None = None, on_thought: OnText | None = None
    ) -> Completion:
        """Generate as `Models.generate` does. `on_thought` gets what the model thinks before, piece by piece."""


class WatchedModels:
    """The models that one attempt or plan may ask. Nobody but `on_thought` and the journal sees what they think."""

    def __init__(self, models: ThinkingModels, on_thought: OnText) -> None:
        self._models = models
        self._on_thought = on_thought
        self._thoughts: list[str] = []

    @property
    def thoughts(self) -> str:
        """All that was thought so far; empty where no model has thought."""
        return "\n\n".join(self._thoughts)

    async def count(self, model: str, messages: Sequence[Message], priority: Priority = "interactive") -> int:
        """Return the tokens of a prompt."""
        return await self._models.count(model, messages, priority)

    async def generate(self, model: str, request: Generation, on_text: OnText | None = None) -> Completion:
        """Generate text, and keep the thoughts."""
        done = await self._models.generate(model, request, on_text, self._on_thought)
        if done.reasoning:
            self._thoughts.append(done.reasoning)
        return done
