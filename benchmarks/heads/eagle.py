"""Write an EAGLE-3 head for a model, as a GGUF file of architecture `eagle3`.

Li et al. 2025, EAGLE-3, section 3.1: an encoder joins the states of three layers, and one block reads them together
with the next token. The head reads the model's embedding, and has a smaller vocabulary of its own.
"""

from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from benchmarks.heads.compose import FOLDER, Tensors, add
from orchestrator.memrl.parl.shape import ROPE_BASE
from orchestrator.memrl.parl.weights import interleaved

ARCHITECTURE = "eagle3"
EAGLE_LAYERS = (1, 3, 4)  # of the large model, counted from 0: its head reads their inputs


def eagle_shapes(width: int, hidden: int, vocabulary: int, read: int = 0) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a head's tensors, by name, rows first. `read` is the width of the model, if that differs."""
    return {
        "fc": (width, 3 * (read or width)),
        "blk.0.attn_norm": (width,),
        "blk.0.attn_norm_2": (width,),
        "blk.0.attn_q": (width, 2 * width),
        "blk.0.attn_k": (width, 2 * width),
        "blk.0.attn_v": (width, 2 * width),
        "blk.0.attn_output": (width, width),
        "blk.0.ffn_norm": (width,),
        "blk.0.ffn_gate": (hidden, width),
        "blk.0.ffn_up": (hidden, width),
        "blk.0.ffn_down": (width, hidden),
        "output_norm": (width,),
        "output": (vocabulary, width),
    }


def eagle_file(size: str) -> Path:
    """Return the file of the trained head for a size of the embedded models."""
    return FOLDER / f"{size}-eagle3.gguf"


def random_eagle(width: int, hidden: int, vocabulary: int, seed: int = 0, *, read: int = 0) -> Tensors:
    """Return a head that drafts at random."""
    rng = np.random.default_rng(seed)
    return {
        name: np.ones(shape, np.float32)
        if len(shape) == 1
        else rng.normal(0, shape[1] ** -0.5, shape).astype(np.float32)
        for name, shape in eagle_shapes(width, hidden, vocabulary, read).items()
    }


def write_eagle(
    trunk: Path, head: Tensors, tokens: NDArray[np.int64], layers: Sequence[int], target: Path, **changed: int
) -> None:
    """Write a head for the model `trunk` to `target`. The rotary halves of a head follow each other, as in a network.

    `tokens` are those that it can draft, in the order of its outputs, and `layers` those whose inputs it reads.
    `changed` replaces values of the header, whose keys are given without the architecture, by others.
    """
    fields = gguf.GGUFReader(trunk).fields
    name = fields["general.architecture"].contents()
    values = {key.removeprefix(f"{name}."): field.contents() for key, field in fields.items()}
    heads, width = values["attention.head_count"], len(head["output_norm"])
    writer = gguf.GGUFWriter(target, ARCHITECTURE)
    numbers = {
        "context_length": values["context_length"],
        "embedding_length": width,
        "block_count": 1,
        "feed_forward_length": len(head["blk.0.ffn_gate"]),
        "attention.head_count": heads,
        "attention.head_count_kv": heads,
        "rope.dimension_count": width // heads,
        "target_hidden_size": values["embedding_length"],
    } | changed
    for key, value in numbers.items():
        writer.add_uint32(f"{ARCHITECTURE}.{key}", value)
    writer.add_layer_norm_rms_eps(values["attention.layer_norm_rms_epsilon"])
    writer.add_rope_freq_base(values.get("rope.freq_base", ROPE_BASE))
    writer.add_array(f"{ARCHITECTURE}.target_layers", list(layers))
    for key, field in fields.items():
        if key.startswith("tokenizer.ggml."):
            kind = field.types[1] if len(field.types) > 1 else None
            writer.add_key_value(key, field.contents(), field.types[0], kind)
    for name, weights in head.items():
        turned = name in ("blk.0.attn_q", "blk.0.attn_k")
        add(writer, f"{name}.weight", interleaved(weights, heads) if turned else weights)
    writer.add_tensor("d2t", np.asarray(tokens, np.int64))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
