"""Say what every measured system gets and gives back."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from orchestrator.engine.contract import Message

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How to start a system. `context` is the longest sequence and `width` the most sequences at once; every system
    gets a KV cache of `width` x `context` cells. `folder` keeps logs and what was measured of models."""

    model: Path
    width: int
    context: int
    threads: int
    folder: Path


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as chat messages, as the text that the model's template makes of them, and as the tokens of that.

    Whatever takes requests gets messages or the text, and makes tokens of it, as it does for its users.
    """

    messages: tuple[Message, ...]
    text: str
    tokens: Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Requests that come at the same time. `answer` tokens are generated for each at temperature 0. The first `shared`
    tokens of all prompts are the same. `texts` are the answers, where they are known. With `steps`, the prompts are
    the steps of one run, each of which reads what the one before has written, in about `answer` tokens."""

    prompts: tuple[Prompt, ...]
    answer: int
    shared: int = 0
    texts: tuple[str, ...] | None = None
    steps: bool = False

    def first(self, requests: int) -> "Load":
        """Return the load of the first of the requests."""
        texts = None if self.texts is None else self.texts[:requests]
        return replace(self, prompts=self.prompts[:requests], texts=texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a load came to. `seconds` run from the first request to the last answer; of them `llama_seconds` were spent
    inside llama.cpp and `own_seconds` in our own steps around it, where that is known. `asked` are the tokens that
    each prompt came to. `split_cache` says how our engine's cache was laid out at the end. `lost` are attempts that
    came to nothing: of the steps of a run, or to get answers to the load at all."""

    seconds: float
    tokens: int
    texts: tuple[str, ...] | None = None
    asked: tuple[int, ...] | None = None
    llama_seconds: float = 0.0
    own_seconds: float = 0.0
    split_cache: bool | None = None
    lost: int = 0


class System(Protocol):
    """One way to generate text, with a model loaded."""

    name: str

    async def run(self, load: Load) -> Measured:
        """Do it all and say how long it took."""

    async def close(self) -> None:
        """Free everything."""
