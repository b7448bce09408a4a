"""The port to engines: what the pool needs of an engine, and how it starts one.

Real engines are processes (`orchestrator.engine.client.engine.Engine`). Simulated engines answer after the time that a
cost model predicts, so that the real pool can run on a virtual clock.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from orchestrator.engine.client.engine import Completion, OnText
from orchestrator.engine.contract import (
    Embeddings,
    EngineSpec,
    EngineStats,
    Generation,
    Message,
    ModelInfo,
    OfferedTool,
    Ranking,
    TokenizedText,
)
from orchestrator.engine.errors import EngineDied
from registry.thinking import Thinking


class EngineHandle(Protocol):
    """An engine with a loaded model. When it has ended, every pending and later call raises EngineDied."""

    @property
    def info(self) -> ModelInfo:
        """Describes the loaded model."""

    @property
    def died(self) -> asyncio.Event:
        """Set once the engine has ended."""

    @property
    def failure(self) -> EngineDied | None:
        """Why the engine ended; None while it runs."""

    async def generate(
        self, request: Generation, on_text: OnText | None = None, on_thought: OnText | None = None
    ) -> Completion:
        """Generate text. `on_text` gets it piece by piece, and `on_thought` what the model thinks before.

        Raises EngineError, or what these raise.
        """

    async def count(
        self, messages: Sequence[Message], tools: Sequence[OfferedTool] = (), thinking: Thinking = "auto"
    ) -> int:
        """Return how many tokens the prompt of these messages has, with these tools in its chat template.

        Raises EngineError.
        """

    async def tokenize(self, text: str, *, special: bool = True, whole: bool = False) -> TokenizedText:
        """Return the tokens of a text, as `Engine.tokenize` does. Raises EngineError."""

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens. Raises EngineError."""

    async def render(
        self,
        messages: Sequence[Message],
        arguments: Mapping[str, bool | int | float | str | None] | None = None,
        tools: Sequence[OfferedTool] = (),
    ) -> str:
        """Return the prompt that the model's chat template makes of messages and tools. Raises EngineError."""

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Make a vector of each text. Raises EngineError."""

    async def rank(self, query: str, texts: Sequence[str]) -> Ranking:
        """Return how relevant each text is to a query. Raises EngineError."""

    async def stats(self) -> EngineStats:
        """Return the counters. Raises EngineDied."""

    async def set_threads(self, threads: int) -> None:
        """Compute with this many threads from the next step on; with 0, pause. Raises EngineDied."""

    async def stop(self) -> None:
        """Stop the engine, and wait until it has ended. Pending calls raise EngineStopped. May be called again."""

    async def wait_dead(self) -> EngineDied:
        """Wait until the engine has ended, and return why."""


StartEngine = Callable[[EngineSpec], Awaitable[EngineHandle]]
"""Starts an engine. Raises ModelLoadFailed, after everything that was started has ended again."""
