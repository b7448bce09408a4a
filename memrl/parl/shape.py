"""Say which sizes a model has that can be trained here, and refuse those that compute otherwise."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.errors import InputError, Problem
from orchestrator.registry.gguf import GgufHeader, read_header
from orchestrator.registry.gguf_reader import RawHeader, read_raw

LLAMA: Final = "llama"
"""The architecture whose GGUF files have the two rotary halves of each head interleaved."""
ARCHITECTURES: Final = (LLAMA, "qwen2")
ROPE_BASE: Final = 10000.0
NORM_EPSILON: Final = 1e-5
BIASES: Final = r"attn_[qkv]\.bias"
TENSOR: Final = re.compile(
    rf"token_embd\.weight|output_norm\.weight|output\.weight"
    rf"|blk\.\d+\.((attn_(norm|q|k|v|output)|ffn_(norm|gate|up|down))\.weight|{BIASES})"
)
"""The names of the tensors that a network has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkShape:
    """The sizes of a Llama model, or of a Qwen2 model, which has biases."""

    vocabulary: int  # tokens
    width: int
    hidden: int  # the inner width of the SwiGLU
    layers: int
    heads: int
    kv_heads: int  # each is read by as many heads
    context: int  # the most tokens of a row
    rope_base: float = ROPE_BASE
    norm_epsilon: float = NORM_EPSILON
    biased: bool = False  # whether queries, keys and values have biases
    tied: bool = False  # whether the embedding is also the head


def shape_of(file: Path) -> NetworkShape:
    """Return the sizes of the model in a GGUF file. Raises GgufError, and InputError for an unknown kind."""
    header, raw = read_header(file), read_raw(file)
    if why := _unlike_ours(header, raw):
        raise InputError(Problem(str(file), why, f"a model of the architecture {' or '.join(ARCHITECTURES)}"))
    names = {tensor.name for tensor in raw.tensors}
    return NetworkShape(
        vocabulary=header.vocab_size,
        width=header.embedding,
        hidden=header.feed_forward,
        layers=header.layers,
        heads=header.heads,
        kv_heads=header.kv_heads[0],
        context=header.context_length,
        rope_base=_number(header, raw, "rope.freq_base", ROPE_BASE),
        norm_epsilon=_number(header, raw, "attention.layer_norm_rms_epsilon", NORM_EPSILON),
        biased=any(name.endswith(".bias") for name in names),
        tied="output.weight" not in names,
    )


def _number(header: GgufHeader, raw: RawHeader, key: str, default: float) -> float:
    value = raw.entries.get(f"{header.architecture}.{key}", default)
    return float(value) if isinstance(value, int | float) else default


def _unlike_ours(header: GgufHeader, raw: RawHeader) -> str:
    if header.architecture not in ARCHITECTURES:
        return f"has the architecture {header.architecture}"
    if (scaling := raw.entries.get(f"{header.architecture}.rope.scaling.type", "none")) != "none":
        return f"scales its positions ({scaling})"
    if len(set(header.kv_heads)) != 1 or header.key_length * header.heads != header.embedding:
        return "has heads of several kinds"
    other = next((tensor.name for tensor in raw.tensors if not TENSOR.fullmatch(tensor.name)), None)
    return f"has a tensor {other}, which is unknown here" if other else ""
