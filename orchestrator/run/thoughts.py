"""Collect the reasoning of models during an attempt or a plan, for the journal."""

from collections.abc import Sequence
from typing import Protocol

from orchestrator.engine.client.engine import Completion, OnText
from orchestrator.engine.contract import Generation, Message, Priority
from orchestrator.run.steps.attempt import Models


class ThinkingModels(Models, Protocol):
    """Models whose reasoning can be followed."""

    async def generate(
        self, model: str, request: Generation, on_text: OnText | None = None, on_thought: OnText | None = None
    ) -> Completion:
        """Generate as `Models.generate` does. `on_thought` gets the reasoning, piece by piece."""


class WatchedModels:
    """The models that one attempt or plan may use. Only `on_thought` and the journal get the reasoning."""

    def __init__(self, models: ThinkingModels, on_thought: OnText) -> None:
        self._models = models
        self._on_thought = on_thought
        self._thoughts: list[str] = []

    @property
    def thoughts(self) -> str:
        """All reasoning so far; may be empty."""
        return "\n\n".join(self._thoughts)

    async def count(self, model: str, messages: Sequence[Message], priority: Priority = "interactive") -> int:
        return await self._models.count(model, messages, priority)

    async def generate(self, model: str, request: Generation, on_text: OnText | None = None) -> Completion:
        completion = await self._models.generate(model, request, on_text, self._on_thought)
        if completion.reasoning:
            self._thoughts.append(completion.reasoning)
        return completion
