"""Say which sizes a model has that can be trained here."""

from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import Final

from orchestrator.errors import InputError, Problem
from orchestrator.registry.gguf import GgufHeader, read_header
from orchestrator.registry.gguf_reader import RawHeader, read_raw

LLAMA: Final = "llama"
"""The architecture whose GGUF files have the two rotary halves of each head interleaved."""
ROPE_BASE: Final = 10000.0
NORM_EPSILON: Final = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkShape:
    """The sizes of a Llama model. All heads have keys and values of their own."""

    vocabulary: int  # tokens
    width: int
    hidden: int  # the inner width of the SwiGLU
    layers: int
    heads: int
    context: int  # the most tokens of a row
    rope_base: float = ROPE_BASE
    norm_epsilon: float = NORM_EPSILON


def shape_of(file: Path) -> NetworkShape:
    """Return the sizes of the model in a GGUF file. Raises GgufError, and InputError for another architecture."""
    header = read_header(file)
    if why := _unlike_ours(header, read_raw(file)):
        raise InputError(Problem(str(file), why, "a Llama model as the embedded ones are"))
    return NetworkShape(
        vocabulary=header.vocab_size,
        width=header.embedding,
        hidden=header.feed_forward,
        layers=header.layers,
        heads=header.heads,
        context=header.context_length,
    )


def _unlike_ours(header: GgufHeader, raw: RawHeader) -> str:
    if header.architecture != LLAMA:
        return f"has the architecture {header.architecture}"
    if any(count != header.heads for count in header.kv_heads):
        return "shares keys and values among heads"
    if "output.weight" not in {tensor.name for tensor in raw.tensors}:
        return "has no head of its own"
    for key, ours in (("rope.freq_base", ROPE_BASE), ("attention.layer_norm_rms_epsilon", NORM_EPSILON)):
        value = raw.entries.get(f"{LLAMA}.{key}", ours)
        if not isinstance(value, float) or not isclose(value, ours, rel_tol=1e-3):
            return f"has {key} = {value}"
    return "has experts" if header.experts else ""
