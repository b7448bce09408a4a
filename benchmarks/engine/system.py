"""The interface of every measured system: its setup, the loads that it gets and what it returns."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from orchestrator.engine.contract import Message

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemSetup:
    """How to start a system. Every system gets a KV cache of `cells` tokens."""

    model: Path
    width: int  # the most sequences at once
    context: int  # the longest sequence, in tokens
    threads: int
    folder: Path  # where logs and measured step costs are kept
    # The cells of a cache that all sequences share, where cells for each would take too much memory.
    pool: int | None = None

    @property
    def cells(self) -> int:
        """The cells of the whole KV cache: `width` x `context`, or those of the pool."""
        return self.pool or self.width * self.context


@dataclass(frozen=True, slots=True)
class BenchmarkPrompt:
    """A prompt as chat messages, as the text that the model's template makes of them, and as the tokens of the text.

    A system gets the messages or the text, and tokenises them itself, as it does for its users.
    """

    messages: tuple[Message, ...]
    text: str
    tokens: Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLoad:
    """Requests that come at the same time and are answered at temperature 0."""

    prompts: tuple[BenchmarkPrompt, ...]
    answer: int  # how many tokens to generate for each
    shared: int = 0  # how many tokens all prompts begin with
    texts: tuple[str, ...] | None = None  # the right answers, where they are known
    # Whether the prompts are the steps of one run, each of which reads what the step before has written.
    steps: bool = False

    def first(self, requests: int) -> "RequestLoad":
        """Return a load of only the first `requests` requests."""
        texts = None if self.texts is None else self.texts[:requests]
        return replace(self, prompts=self.prompts[:requests], texts=texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The result of a load."""

    seconds: float  # the time from the first request to the last answer
    tokens: int  # how many tokens were generated
    texts: tuple[str, ...] | None = None  # the answers, where the system returns them
    asked: tuple[int, ...] | None = None  # how many tokens each prompt had, where the system says so
    llama_seconds: float = 0.0  # the time inside llama.cpp, where it is known
    own_seconds: float = 0.0  # the time of our engine's own steps around llama.cpp, where it is known
    split_cache: bool | None = None  # whether our engine's cache was split into streams at the end
    lost: int = 0  # how many attempts failed: of the steps of a run, or to get the answers


class System(Protocol):
    """One way to generate text, with a model loaded."""

    name: str

    async def run(self, load: RequestLoad) -> Measured:
        """Answer all requests of a load and return how long that took."""

    async def close(self) -> None:
        """End the system and free what it holds."""
