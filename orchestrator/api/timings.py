"""Say how long prompt and answer took, in the form that llama-server has in all of its answers."""

import time
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from orchestrator.task.events import Usage


class Timings(BaseModel):
    """How long prompt and answer took."""

    cache_n: int
    """Tokens of the prompt that the KV cache had."""
    prompt_n: int
    """Tokens of the prompt that were computed."""
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    """Tokens of the answer."""
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float


def timings_of(usages: Sequence[Usage]) -> Timings:
    """Return how long the answers to one prompt took, which are generated at the same time.

    The prompt is that of the first one, which computes it for the others.
    """
    first, *_ = usages
    prompt = _rates("prompt", first.prompt_tokens - first.cached_tokens, first.prefill_seconds)
    answers = _rates("predicted", sum(one.output_tokens for one in usages), max(one.decode_seconds for one in usages))
    return Timings(cache_n=first.cached_tokens, **prompt, **answers)


class TimingsSoFar:
    """How long an answer has taken so far, by the clock of the daemon. What its prompt took is told at its end."""

    def __init__(self) -> None:
        self._begin = 0.0
        self._tokens = 0

    def after(self, tokens: int) -> dict[str, Any]:
        """Return the fields of `Timings` that tell of the answer, after a piece of it that has so many tokens."""
        now = time.perf_counter()
        if not self._tokens:
            self._begin = now
        self._tokens += tokens
        return _rates("predicted", self._tokens, now - self._begin)


def _rates(name: str, tokens: int, seconds: float) -> dict[str, Any]:
    return {
        f"{name}_n": tokens,
        f"{name}_ms": 1000 * seconds,
        f"{name}_per_token_ms": 1000 * seconds / tokens if tokens else 0.0,
        f"{name}_per_second": tokens / seconds if seconds else 0.0,
    }
