"""Estimate the memory of a loaded model, in bytes, from its file's header.

A model is loaded if its estimate fits, so estimates err on the high side: sliding windows count as if they held every
token.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, get_args

from orchestrator.registry.architectures import COMPRESSED, ROLLS_BACK
from orchestrator.registry.gguf import GgufHeader
from orchestrator.registry.gguf_reader import TENSOR_TYPES
from orchestrator.registry.options import (
    INVARIANT_MICRO_BATCH,
    INVARIANT_ROWS,
    MAX_SCORES,
    MOST_CHECKPOINTS,
    KvType,
    LoadOptions,
    invariant_streams,
    state_sequences,
)

# Bytes of one element in the KV cache.
CACHE_TYPES: Final[dict[KvType, Fraction]] = {
    kind: Fraction(size, block)
    for kind in get_args(KvType)
    for name, block, size in TENSOR_TYPES.values()
    if name == kind.upper()
}
BATCH: Final = 512  # tokens computed together
SCORED: Final = 128  # tokens computed together by an engine that keeps attention scores
CELLS: Final = 256  # llama.cpp allocates a multiple of this for every stream
PROCESS: Final = 96 << 20


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes by purpose. `process` is for the interpreter and libraries of an engine's process."""

    weights: int
    kv_cache: int
    compute: int
    process: int = PROCESS

    @property
    def total(self) -> int:
        return self.weights + self.kv_cache + self.compute + self.process

    def __add__(self, other: "MemoryEstimate") -> "MemoryEstimate":
        # Two models share one process.
        return MemoryEstimate(
            weights=self.weights + other.weights,
            kv_cache=self.kv_cache + other.kv_cache,
            compute=self.compute + other.compute,
        )

    def __str__(self) -> str:
        parts = ((self.weights, "weights"), (self.kv_cache, "KV cache"), (self.compute, "compute buffers"))
        return " + ".join(f"{size(number)} {purpose}" for number, purpose in (*parts, (self.process, "process")))


def estimate(header: GgufHeader, options: LoadOptions, *, embeds: bool = False) -> MemoryEstimate:
    """Estimate the bytes of a model that is loaded with these options.

    A `batch_invariant` engine needs room for padding tokens. One that `embeds` computes up to `context` tokens in one
    micro-batch, and llama.cpp reserves the logits of each, twice.
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
    states = slots if options.batch_invariant or embeds else state_sequences(slots)
    per_cell = header.cached_keys * CACHE_TYPES[key_type] + header.cached_values * CACHE_TYPES[value_type]
    # A model that compresses its keys has as many cells for every sequence as others have for all.
    pools = states if header.architecture in COMPRESSED else 1
    snapshots = options.rollback if header.architecture in ROLLS_BACK else 0
    if header.has_windows and header.architecture not in COMPRESSED:
        states, snapshots = 2 * states, 0  # each sequence has two numbers, and is taken back to checkpoints
    states += min(slots, MOST_CHECKPOINTS) if options.rollback else 0
    kv_cache = int(per_cell * cells) * pools + header.state_bytes * states * (1 + snapshots)
    if options.mtp is not None:
        kv_cache += header.mtp_cell_bytes * cells
    micro_batch = context if embeds else INVARIANT_MICRO_BATCH if options.batch_invariant else BATCH
    logits = 2 * context if embeds else BATCH
    activations = 4 * header.embedding + 3 * header.feed_forward
    scores = cells * header.heads if options.flash_attention != "on" else 0
    if options.flash_attention == "auto":
        keeps_none = options.batch_invariant or embeds or value_type.startswith("q")
        scores = 0 if keeps_none else min(scores, MAX_SCORES)
    mask = micro_batch * 2 * cells
    stored_scores = min(micro_batch, SCORED) * scores * 3 // 2  # the scores, and once more in 16 bits
    return MemoryEstimate(
        weights=header.weight_bytes,
        kv_cache=kv_cache,
        compute=4 * (micro_batch * activations + mask + stored_scores + logits * header.vocab_size),
    )


def estimate_draft(header: GgufHeader, options: LoadOptions) -> MemoryEstimate:
    """Estimate the bytes of a draft model in the same process, for a target with these options."""
    # It has as many and as long sequences as the target, in a KV cache of 16 bits.
    slots = invariant_streams(options.slots) if options.batch_invariant else options.slots
    return estimate(header, LoadOptions(context=options.context, slots=slots, flash_attention=options.flash_attention))


def estimate_eagle(target: GgufHeader, head: GgufHeader, options: LoadOptions) -> MemoryEstimate:
    """Estimate the bytes of an EAGLE-3 head in the process of its target, which has these options."""
    # It has as many cells as the target, in 16 bits, and logits for each token that it reads at once, as its own and as
    # those of the target. The target hands over inputs of layers, and has a second context of the least size.
    own = estimate(head, replace(options, kv_type_k="f16", kv_type_v="f16", eagle=None, flash_attention="on"))
    handed_over = 4 * 2 * len(head.read_layers) * BATCH * head.read_width
    least = int(CELLS * 2 * (target.cached_keys + target.cached_values)) + target.state_bytes
    return MemoryEstimate(weights=own.weights, kv_cache=own.kv_cache + least, compute=own.compute + handed_over)


def _rounded(cells: int) -> int:
    return -(-cells // CELLS) * CELLS


def size(number: int) -> str:
    """Format bytes for people, such as `1.5 GiB`."""
    value = float(number)
    for unit in ("B", "KiB", "MiB"):
        if abs(value) < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
