"""Choose how attention is computed: in one pass ("flash"), or with its scores kept in between.

Flash attention takes a token's cells one after the other. On some CPUs decoding slows down with every cell, and with
the scores kept, where both halves are matrix products, a cell takes a fraction of the time; on others it takes as long,
and prompts take longer. So it is measured where that takes seconds.
`docs/adr/0009-attention-that-keeps-its-scores.md` has figures.
"""

from orchestrator.engine.contract import EngineSpec

LONG_CONTEXT = 1024
"""Sequences that may have so many tokens spend most of their time where keeping the scores pays."""

MICRO_BATCH_WITH_SCORES = 128
"""A micro-batch has no more tokens where scores are kept: those of more do not fit into the processor's caches, and
prompts would take a tenth longer. As it is, they take as long as with flash attention."""

MAX_SCORES = 1 << 20
"""Scores a token, over all heads and cells. With 128 tokens in a micro-batch they take 512 MiB; more are not kept."""

ANSWER_TOKENS = 128
"""Kinds of attention are compared by the time for `LONG_CONTEXT` tokens of a prompt and so many of an answer."""

MIN_SAVING = 0.1
"""Scores are kept where that saves so much at least: prompts suffer more from neighbours on the same machine."""

MAX_POOLED_SLOTS = 4
"""In a common pool every token is scored against the cells of all sequences, so that more of them cost more."""


def may_keep_scores(spec: EngineSpec, *, context: int, heads: int, split: bool) -> bool:
    """Return whether an engine whose settings say "auto" may compute attention without flash attention, and does so
    where nothing was measured.

    `context` are the tokens of its longest sequence, and `split` says whether each has cells of its own.
    Batch-invariant engines need flash attention, and so do quantised values.
    """
    cells = context if split else spec.cells or context * spec.slots
    able = not spec.batch_invariant and spec.kv_type_v in ("f16", "f32")
    return (
        able and context >= LONG_CONTEXT and heads * cells <= MAX_SCORES and (split or spec.slots <= MAX_POOLED_SLOTS)
    )


def should_keep_scores(kept: float, flash: float) -> bool:
    """Return whether to keep scores, when the same work took `kept` seconds with them and `flash` seconds without."""
    return kept < (1 - MIN_SAVING) * flash
