"""Decide which kind of attention an engine may use: flash attention, or attention that keeps its scores in memory.

Flash attention computes a token's cells one after the other. On some CPUs decoding gets slower with every cell. There,
keeping the scores turns both halves of attention into matrix products, and a cell takes a fraction of the time. On
other CPUs it takes as long, and prompts take longer. So both are measured where that takes only seconds
(`attention_trial`). `docs/adr/0009-attention-that-keeps-its-scores.md` has figures.
"""

from orchestrator.engine.contract import EngineSpec
from registry.options import MAX_SCORES

LONG_CONTEXT = 1024
"""Scores are kept only if sequences may have at least so many tokens: such sequences decode mostly at depths where
keeping scores is faster."""

MICRO_BATCH_WITH_SCORES = 128
"""The most tokens of a micro-batch when scores are kept. The scores of more tokens do not fit into the processor's
caches, and prompts would take a tenth longer; with this limit they take as long as with flash attention."""

ANSWER_TOKENS = 128
"""A trial compares the time for `LONG_CONTEXT` tokens of a prompt and this many tokens of an answer."""

MIN_SAVING = 0.1
"""The fraction of the time that keeping scores must save: it makes prompts more sensitive to other processes."""

MAX_POOLED_SLOTS = 4
"""The most slots with which scores are kept in a common pool, where every token is scored against the cells of all
sequences."""


def may_keep_scores(spec: EngineSpec, *, context: int, heads: int, split: bool) -> bool:
    """Return whether an engine whose setting `flash_attention` is "auto" may keep scores.

    Such an engine keeps scores until a trial finds flash attention faster. `context` is the longest sequence in tokens,
    `heads` the number of attention heads, and `split` says whether each sequence has cells of its own. Batch-invariant
    engines and quantised values need flash attention.
    """
    cells = context if split else spec.cells or context * spec.slots
    able = not spec.batch_invariant and spec.kv_type_v in ("f16", "f32")
    fits = heads * cells <= MAX_SCORES and (split or spec.slots <= MAX_POOLED_SLOTS)
    return able and context >= LONG_CONTEXT and fits


def should_keep_scores(kept: float, flash: float) -> bool:
    """Return whether to keep scores when the same work took `kept` seconds with them and `flash` seconds without."""
    return kept < (1 - MIN_SAVING) * flash
