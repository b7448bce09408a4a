"""The port to engines: what the pool needs of an engine, and how it starts one.

Real engines are processes (`orchestrator.engine.client.engine.Engine`). Simulated ones let the real pool run on a
virtual clock.
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
    HeldPrefix,
    Message,
    ModelInfo,
    OfferedTool,
    PrefixFile,
    Ranking,
    TokenizedText,
)
from orchestrator.engine.errors import EngineDied
from orchestrator.registry.thinking import Thinking


class EngineHandle(Protocol):
    """An engine with a loaded model. After its end, every pending and later call raises EngineDied."""

    @property
    def info(self) -> ModelInfo:
        """The loaded model."""

    @property
    def died(self) -> asyncio.Event:
        """Set once the engine has ended."""

    @property
    def failure(self) -> EngineDied | None:
        """Why the engine ended; None while it runs."""

    @property
    def lost_prompts(self) -> Sequence[bytes]:
        """The prompts that the engine was answering when it ended, as in `Completion.prompt_blocks`."""

    async def generate(
        self, request: Generation, on_text: OnText | None = None, on_thought: OnText | None = None
    ) -> Completion:
        """Generate text. `on_text` gets pieces of text, `on_thought` pieces of reasoning.

        Raises EngineError, or what the callbacks raise.
        """

    async def count(
        self, messages: Sequence[Message], tools: Sequence[OfferedTool] = (), thinking: Thinking = "auto"
    ) -> int:
        """Return the prompt tokens of messages, with tools in the chat template. Raises EngineError."""

    async def tokenize(self, text: str, *, special: bool = True, whole: bool = False) -> TokenizedText:
        """Return the tokens of a text, see `Engine.tokenize`. Raises EngineError."""

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens. Raises EngineError."""

    async def render(
        self,
        messages: Sequence[Message],
        arguments: Mapping[str, bool | int | float | str | None] | None = None,
        tools: Sequence[OfferedTool] = (),
    ) -> str:
        """Return the prompt that the chat template makes. Raises EngineError."""

    async def locate(self, request: Generation) -> HeldPrefix:
        """Return how much of a request's prompt need not be computed. Raises EngineError."""

    async def export(self, request: Generation, key: str, least: int) -> PrefixFile | None:
        """Return a file with the start of a request's prompt, see `Engine.export`. Raises EngineError."""

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return a vector for each text. Raises EngineError."""

    async def rank(self, query: str, texts: Sequence[str]) -> Ranking:
        """Return the relevance of each text to a query. Raises EngineError."""

    async def stats(self) -> EngineStats:
        """Return the counters. Raises EngineDied."""

    async def set_threads(self, threads: int) -> None:
        """Use this many threads from the next step on; 0 pauses. Raises EngineDied."""

    async def stop(self) -> None:
        """Stop the engine and wait for its end. Pending calls raise EngineStopped. May be called again."""

    async def wait_dead(self) -> EngineDied:
        """Wait until the engine has ended, and return why."""


# Raises ModelLoadFailed after everything that was started has ended again.
StartEngine = Callable[[EngineSpec], Awaitable[EngineHandle]]
