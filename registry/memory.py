"""Estimate the bytes of memory that a loaded model takes, from its file's header.

Estimates are rather too high than too low, because a model is loaded if its estimate fits. Sliding windows and
compressed attention make the real KV cache smaller than estimated.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from registry.gguf import GgufHeader
from registry.options import (
    INVARIANT_MICRO_BATCH,
    INVARIANT_ROWS,
    MAX_SCORES,
    KvType,
    LoadOptions,
    invariant_streams,
)

# bytes of one element in the KV cache
CACHE_TYPES: Final[dict[KvType, Fraction]] = {
    "f32": Fraction(4),
    "f16": Fraction(2),
    "bf16": Fraction(2),
    "q8_0": Fraction(34, 32),
    "q5_1": Fraction(24, 32),
    "q5_0": Fraction(22, 32),
    "q4_1": Fraction(20, 32),
    "q4_0": Fraction(18, 32),
}
BATCH: Final = 512
"""How many tokens are computed together."""
SCORED: Final = 128
"""How many tokens are computed together by an engine that keeps the scores of attention."""
CELLS: Final = 256
"""llama.cpp allocates a multiple of so many KV cells for every stream."""
PROCESS: Final = 96 << 20


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes by purpose. `process` is what the interpreter and the libraries of an engine's process take."""

    weights: int
    kv_cache: int
    compute: int
    process: int = PROCESS

    @property
    def total(self) -> int:
        """The sum, in bytes."""
        return self.weights + self.kv_cache + self.compute + self.process

    def __add__(self, other: "MemoryEstimate") -> "MemoryEstimate":
        """Return the memory of two models in one process."""
        return MemoryEstimate(
            weights=self.weights + other.weights,
            kv_cache=self.kv_cache + other.kv_cache,
            compute=self.compute + other.compute,
        )

    def __str__(self) -> str:
        parts = ((self.weights, "weights"), (self.kv_cache, "KV cache"), (self.compute, "compute buffers"))
        return " + ".join(f"{size(number)} {what}" for number, what in (*parts, (self.process, "process")))


def estimate(header: GgufHeader, options: LoadOptions, *, embeds: bool = False) -> MemoryEstimate:
    """Estimate the bytes of a model that is loaded with these options.

    A `batch_invariant` engine has room for the tokens that it pads its steps with. One that `embeds` computes up to
    `context` tokens in one micro-batch, and llama.cpp keeps room for the logits of each of them, twice.
    """
    context, slots = options.context or header.context_length, options.slots
    cells, key_type, value_type = options.cells, options.kv_type_k, options.kv_type_v
    if embeds:
        cells, key_type, value_type = context, "f16", "f16"
    if cells:
        cells = _rounded(cells)
    elif options.batch_invariant:
        cells = _rounded(context + max(INVARIANT_ROWS)) * invariant_streams(slots)
    else:
        cells = _rounded(context) * slots
    per_head = header.key_length * CACHE_TYPES[key_type] + header.value_length * CACHE_TYPES[value_type]
    kv_cache = int(sum(header.kv_heads) * per_head * cells) + header.state_bytes * slots
    micro_batch = context if embeds else INVARIANT_MICRO_BATCH if options.batch_invariant else BATCH
    logits = 2 * context if embeds else BATCH
    activations = 4 * header.embedding + 3 * header.feed_forward
    scores = cells * header.heads if options.flash_attention != "on" else 0
    if options.flash_attention == "auto":
        keeps_none = options.batch_invariant or embeds or value_type.startswith("q")
        scores = 0 if keeps_none else min(scores, MAX_SCORES)
    mask = micro_batch * 2 * cells
    kept = min(micro_batch, SCORED) * scores * 3 // 2  # the scores, and once more in 16 bits
    return MemoryEstimate(
        weights=header.weight_bytes,
        kv_cache=kv_cache,
        compute=4 * (micro_batch * activations + mask + kept + logits * header.vocab_size),
    )


def estimate_draft(header: GgufHeader, options: LoadOptions) -> MemoryEstimate:
    """Estimate the bytes of a model that drafts, in the same process, for one that is loaded with these options.

    It has a sequence for each of the other model's, of the same length, in a KV cache of 16 bits.
    """
    slots = invariant_streams(options.slots) if options.batch_invariant else options.slots
    return estimate(header, LoadOptions(context=options.context, slots=slots, flash_attention=options.flash_attention))


def _rounded(cells: int) -> int:
    """Return how many cells llama.cpp allocates for a stream of so many."""
    return -(-cells // CELLS) * CELLS


def size(number: int) -> str:
    """Format a number of bytes for people, such as `1.5 GiB`."""
    value = float(number)
    for unit in ("B", "KiB", "MiB"):
        if abs(value) < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
