"""Decide between flash attention and attention that stores its scores in memory.

On some CPUs, flash attention decodes slower with every cell, and stored scores are much faster. On others they are not,
and prompts take longer. So both are measured (`attention_trial`). Figures:
`docs/adr/0009-attention-that-keeps-its-scores.md`.
"""

from orchestrator.engine.contract import EngineSpec
from orchestrator.registry.options import MAX_SCORES

# In tokens. Scores pay off only for long sequences: these decode mostly at depths where stored scores are faster.
LONG_CONTEXT = 1024

# The most tokens of a micro-batch with scores. More scores do not fit into the processor's caches, and prompts would
# take a tenth longer; with this limit they take as long as with flash attention.
MICRO_BATCH_WITH_SCORES = 128

ANSWER_TOKENS = 128  # a trial times `LONG_CONTEXT` tokens of prompt and this many tokens of answer

MIN_SAVING = 0.1  # as a fraction; scores make prompts more sensitive to other processes

MAX_POOLED_SLOTS = 4  # In a common pool, every token is scored against the cells of all sequences.


def may_keep_scores(spec: EngineSpec, *, context: int, heads: int, split: bool) -> bool:
    """Return whether an engine with `flash_attention` "auto" may store scores, unless a trial decides against it.

    `context` is in tokens. With `split`, each sequence has its own cells. Batch-invariant engines and quantised values
    need flash attention.
    """
    cells = context if split else spec.cells or context * spec.slots
    able = not spec.batch_invariant and spec.kv_type_v in ("f16", "f32")
    fits = heads * cells <= MAX_SCORES and (split or spec.slots <= MAX_POOLED_SLOTS)
    return able and context >= LONG_CONTEXT and fits


def should_keep_scores(with_scores: float, flash: float) -> bool:
    """Return whether scores save enough, given the seconds for the same work."""
    return with_scores < (1 - MIN_SAVING) * flash
