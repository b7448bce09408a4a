"""Define the port to engines: what the pool asks of one, and how it gets one.

The real engines are processes (`orchestrator.engine.client.engine.Engine`). Simulated ones answer by a cost curve, so
that the real pool can run on a virtual clock.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from orchestrator.engine.client.engine import Completion, OnText
from orchestrator.engine.contract import Embeddings, EngineSpec, EngineStats, Generation, Message, ModelInfo
from orchestrator.engine.errors import EngineDied


class EngineHandle(Protocol):
    """An engine with a loaded model. Once it has ended, every pending and later call raises EngineDied."""

    @property
    def info(self) -> ModelInfo:
        """What was loaded."""

    @property
    def died(self) -> asyncio.Event:
        """Set once the engine has ended."""

    @property
    def failure(self) -> EngineDied | None:
        """How it ended; None as long as it has not."""

    async def generate(self, request: Generation, on_text: OnText | None = None) -> Completion:
        """Generate text. `on_text` gets it piece by piece. Raises EngineError, or what `on_text` raises."""

    async def count(self, messages: Sequence[Message]) -> int:
        """Return how many tokens the prompt of these messages has. Raises EngineError."""

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Make a vector of each text. Raises EngineError."""

    async def stats(self) -> EngineStats:
        """Return the counters. Raises EngineDied."""

    async def set_threads(self, threads: int) -> None:
        """Compute with this many threads from the next step on; rest with 0. Raises EngineDied."""

    async def stop(self) -> None:
        """End it, and wait until it has. Pending calls raise EngineStopped. Harmless when it has ended."""

    async def wait_dead(self) -> EngineDied:
        """Wait until it has ended, and say how."""


StartEngine = Callable[[EngineSpec], Awaitable[EngineHandle]]
"""Loads a model and returns its engine. Raises ModelLoadFailed, after whatever was begun has ended."""
