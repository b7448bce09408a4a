"""Report how long prompt and answer took, in the form of llama-server."""

import time
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Field

from orchestrator.task.events import Usage

# Of draft tokens; left out without drafts.
_Drafts = Annotated[int | None, Field(exclude_if=lambda count: count is None)]


class Timings(BaseModel):
    """How long prompt and answer took."""

    cache_n: int  # prompt tokens from the KV cache
    prompt_n: int  # prompt tokens that were computed
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int  # tokens of the answer
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float
    draft_n: _Drafts = None  # that were verified
    draft_n_accepted: _Drafts = None


def timings_of(usages: Sequence[Usage]) -> Timings:
    """Return how long the answers to one prompt took, which were generated at the same time."""
    first, *_ = usages  # this one computed the prompt for the others
    prompt = _rates("prompt", first.prompt_tokens - first.cached_tokens, first.prefill_seconds)
    answers = _rates(
        "predicted", sum(usage.output_tokens for usage in usages), max(usage.decode_seconds for usage in usages)
    )
    drafted = sum(usage.drafted_tokens for usage in usages)
    accepted = sum(usage.accepted_tokens for usage in usages)
    drafts = {"draft_n": drafted, "draft_n_accepted": accepted} if drafted else {}
    return Timings(cache_n=first.cached_tokens, **prompt, **answers, **drafts)


class TimingsSoFar:
    """How long an answer has taken so far, by the daemon's clock. The time for the prompt is known only at the end."""

    def __init__(self) -> None:
        self._begin = 0.0
        self._tokens = 0

    def after(self, tokens: int) -> dict[str, Any]:
        """Return the answer's fields of `Timings` after a piece with this number of tokens."""
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
