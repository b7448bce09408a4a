"""Choose between flash attention and attention that stores its scores in memory, by what the engine computes. Pure.

On some CPUs, flash attention decodes slower with every cell, and stored scores are much faster for long sequences. For
many short ones flash attention is faster. So both are measured (`attention_trial`), and the engine changes the kind
when that would have paid. Figures: `docs/adr/0009-attention-that-keeps-its-scores.md`.
"""

from dataclasses import astuple, dataclass
from math import inf
from typing import Literal

from orchestrator.engine.contract import EngineSpec
from orchestrator.registry.options import MAX_SCORES

Attention = Literal["on", "off"]  # whether flash attention is used

# In tokens. Scores pay off only for long sequences: these decode mostly at depths where stored scores are faster.
LONG_CONTEXT = 1024

# The most tokens of a micro-batch with scores. More scores do not fit into the processor's caches, and prompts would
# take a tenth longer; with this limit they take as long as with flash attention.
MICRO_BATCH_WITH_SCORES = 128

ANSWER_TOKENS = 128  # of an answer to a prompt of `LONG_CONTEXT` tokens, for which a kind is chosen at first

MIN_SAVING = 0.1  # as a fraction; scores make prompts more sensitive to other processes

MAX_POOLED_SLOTS = 4  # In a common pool, every token is scored against the cells of all sequences.

# The recorded steps after a change that show whether the new kind is as fast as it was measured.
_STEPS_TO_JUDGE = 16
_LEARNING_RATE = 0.2  # the fraction of a difference in speed that one recorded step corrects
# Limits what is learned about the two kinds, in both directions: the process may have been suspended.
_MAX_EXCESS = 4.0


@dataclass(frozen=True, slots=True)
class AttentionCosts:
    """What one kind of attention takes, in seconds. Raises ValueError if a cost is not positive and finite.

    The two kinds of a model are measured in turns, so that their ratio is right even if the machine is slow.
    """

    prompt: float  # a token of a prompt of `LONG_CONTEXT` tokens
    first: float  # a step of one token in an empty cache
    widest: float  # a step of one token for each of `width` sequences in an empty cache
    width: int
    per_cell: float  # a cell that a decoded token attends to; may be 0

    def __post_init__(self) -> None:
        positive = (self.prompt, self.first, self.widest, self.width)
        if not (all(0 < value < inf for value in positive) and 0 <= self.per_cell < inf):
            raise ValueError(f"the costs are {astuple(self)}; accepted: positive numbers")

    def seconds(self, prompt_tokens: int, tokens: int, cells: int) -> float:
        """Return the time of a step: tokens of prompts, and decoded tokens that attend to `cells` cells together."""
        seconds = self.prompt * prompt_tokens
        if tokens:
            token = (self.widest - self.first) / (self.width - 1) if self.width > 1 else self.prompt
            seconds += self.first + max(0.0, token) * (tokens - 1) + self.per_cell * cells
        return seconds

    @property
    def answer_seconds(self) -> float:
        """The time for a long prompt and its answer."""
        return self.prompt * LONG_CONTEXT + ANSWER_TOKENS * (self.first + self.per_cell * LONG_CONTEXT)


@dataclass(frozen=True, slots=True)
class MeasuredAttention:
    """What both kinds take, and the one to start with."""

    attention: Attention
    flash: AttentionCosts
    scores: AttentionCosts

    def costs(self, attention: Attention) -> AttentionCosts:
        return self.flash if attention == "on" else self.scores


class AttentionChoice:
    """The kind of attention in use, and how much time the other one would have saved."""

    def __init__(self, measured: MeasuredAttention) -> None:
        self.attention = measured.attention
        # Estimated seconds lost to the other kind. Falls, down to 0, while the other one would be slower.
        self.regret = 0.0
        self._measured = measured
        self._speed = self._speed_before = 0.0  # actual by measured seconds; 0 if unknown
        self._judged = _STEPS_TO_JUDGE
        self._scores_excess = 1.0  # how much slower scores are against flash attention than measured

    def record(
        self, prompt_tokens: int, tokens: int, cells: int, seconds: float, count: int = 1, *, split: float | None = None
    ) -> None:
        """Account for `count` steps of `seconds` each; the tokens and cells are those of `AttentionCosts.seconds`.

        `split` is what the step would have taken with the cache in the layout of the measurements, if that is another.
        """
        comparable = max(seconds / 2, seconds if split is None else split)
        mine, other = (
            self._measured.costs(kind).seconds(prompt_tokens, tokens, cells)
            for kind in (self.attention, _other(self.attention))
        )
        self._judge(comparable / mine)
        excess = self._scores_excess if self.attention == "on" else 1 / self._scores_excess
        saved = seconds - comparable * excess * other / mine
        self.regret = max(0.0, self.regret + count * (saved - MIN_SAVING * seconds))

    def change_is_due(self, change_seconds: float) -> bool:
        """Return whether a change, which takes `change_seconds`, would have paid by now."""
        # Waiting this long never loses more than the change itself costs.
        return self.regret > change_seconds

    def change(self) -> None:
        """Switch to the other kind of attention, and start to judge it."""
        self.attention = _other(self.attention)
        self._speed_before, self._speed = self._speed, 0.0
        self._judged = 0
        self.regret = 0.0

    def forget_regret(self) -> None:
        """Record that the cache has changed its layout, so what was lost before counts no more."""
        self.regret = 0.0

    def _judge(self, speed: float) -> None:
        self._speed += (speed - self._speed) * (_LEARNING_RATE if self._speed else 1.0)
        if self._judged == _STEPS_TO_JUDGE:
            return
        self._judged += 1
        # The machine is hardly faster or slower than just before the change.
        if self._judged == _STEPS_TO_JUDGE and self._speed_before:
            slower = self._speed / self._speed_before
            excess = slower if self.attention == "off" else 1 / slower
            self._scores_excess = max(1 / _MAX_EXCESS, min(excess, _MAX_EXCESS))


def _other(attention: Attention) -> Attention:
    return "off" if attention == "on" else "on"


def may_keep_scores(spec: EngineSpec, *, context: int, heads: int, split: bool) -> bool:
    """Return whether an engine with `flash_attention` "auto" may store scores.

    `context` is in tokens. With `split`, each sequence has its own cells. Batch-invariant engines and quantised values
    need flash attention.
    """
    cells = context if split else spec.cells or context * spec.slots
    able = not spec.batch_invariant and spec.kv_type_v in ("f16", "f32")
    fits = heads * cells <= MAX_SCORES and (split or spec.slots <= MAX_POOLED_SLOTS)
    return able and context >= LONG_CONTEXT and fits


def first_attention(flash: AttentionCosts, scores: AttentionCosts) -> Attention:
    """Return the kind to start with: scores if they save enough of a long prompt and its answer."""
    return "off" if scores.answer_seconds < (1 - MIN_SAVING) * flash.answer_seconds else "on"
