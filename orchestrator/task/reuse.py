"""How many tokens of prompts were expected in an engine's cache, and why some of them were computed again. Pure.

A prediction follows from the prompts before it, never from the cache. It counts whole blocks of tokens.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

BLOCK: Final = 16  # tokens
# Smaller differences, in tokens, are ignored: copying or awaiting those tokens takes as long as computing them.
LEAST: Final = 32
DIGEST_BYTES: Final = 8  # of what identifies a block and all tokens before it
MOST_BLOCKS: Final = 1 << 16  # remembered for one engine, and for all engines of a model

LossCause = Literal[
    "evicted",
    "layout changed",
    "engine restarted",
    "other engine",
    "model cannot share",
    "prompt differs",
    "too short",
    "cancelled",
]


class LossText(NamedTuple):
    why: str  # the end of a sentence about tokens that were computed again
    hint: str  # what the user can do; empty for nothing


LOSS_TEXTS: Final[Mapping[LossCause, LossText]] = {
    "evicted": LossText(
        "the cache was full and had dropped them", "give the model more `slots` or `cells` in the registry"
    ),
    "layout changed": LossText(
        "the engine had emptied its cache to lay it out for other work",
        "set `split` and `flash_attention` of the model in the registry",
    ),
    "engine restarted": LossText(
        "the engine that had them has ended", "keep the model loaded: `orchestrator models pin MODEL`"
    ),
    "other engine": LossText("another engine of the model had them", "set `instances: 1` of the model in the registry"),
    "model cannot share": LossText(
        "the model cannot continue from that place in another prompt",
        "use a model without recurrent layers, or leave out `batch_invariant`",
    ),
    "prompt differs": LossText(
        "the text before them differs", "give steps that read the same text the same role and persona"
    ),
    "too short": LossText("they were too few to copy or to wait for", ""),
    "cancelled": LossText("the request that was to compute them ended before it had", ""),
}


@dataclass(frozen=True, slots=True)
class Reuse:
    """What prompts had in common with earlier ones, in tokens: what was expected to be reused, and what was not."""

    expected_tokens: int = 0
    lost_tokens: Mapping[LossCause, int] = field(default_factory=dict)  # of these, computed again; by cause

    @property
    def reused_tokens(self) -> int:
        return self.expected_tokens - sum(self.lost_tokens.values())

    @property
    def losses(self) -> list[tuple[LossCause, int]]:
        """The causes with their tokens, the greatest first."""
        return sorted(self.lost_tokens.items(), key=lambda loss: -loss[1])

    def __add__(self, other: "Reuse") -> "Reuse":
        lost = Counter(self.lost_tokens)
        lost.update(other.lost_tokens)
        return Reuse(self.expected_tokens + other.expected_tokens, dict(lost))


def compare(cached: int, causes: Sequence[LossCause]) -> Reuse:
    """Return the reuse of a prompt that shares its first `len(causes)` blocks with earlier ones.

    The cache held its first `cached` tokens. Each cause says why a block is missing if it is.
    """
    expected = BLOCK * len(causes)
    if abs(expected - cached) < LEAST:
        return Reuse(cached)
    lost: Counter[LossCause] = Counter()
    for block, cause in enumerate(causes, 1):
        if (missing := min(BLOCK, BLOCK * block - cached)) > 0:
            lost[cause] += missing
    return Reuse(expected, dict(lost))


def with_other_engine(reuse: Reuse, cached: int, prompt: int, blocks: int, cause: LossCause) -> Reuse:
    """Return `reuse` with what another engine has computed: the first `blocks` blocks of a prompt of `prompt` tokens.

    `reuse` is by the prompts before on the engine that answered, whose cache held the first `cached` tokens.
    """
    at_start = reuse.expected_tokens - reuse.lost_tokens.get("prompt differs", 0)
    more = min(BLOCK * blocks - max(at_start, cached), prompt - reuse.expected_tokens)
    return reuse if more < LEAST else reuse + Reuse(more, {cause: more})
