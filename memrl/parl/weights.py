"""Name and order the weights of a network as GGUF files do, and write LoRA weights as a GGUF adapter."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

import gguf
import numpy as np
import numpy.typing as npt

from orchestrator.memrl.parl.shape import LLAMA
from orchestrator.registry.gguf import read_header

Weights = npt.NDArray[np.float32]
T = TypeVar("T", bound=np.generic)  # numbers, or bytes of quantised rows

BLOCK_NAMES: Final = {
    "attention_norm": "attn_norm",
    "query": "attn_q",
    "key": "attn_k",
    "value": "attn_v",
    "output": "attn_output",
    "feed_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
TOP_NAMES: Final = {
    "embedding.weight": "token_embd.weight",
    "norm.weight": "output_norm.weight",
    "head.weight": "output.weight",
}


def gguf_name(name: str) -> str:
    """Return the GGUF name of the parameter `name` of a network."""
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    _, index, part, kind = name.split(".")
    return f"blk.{index}.{BLOCK_NAMES[part]}.{kind}"


def is_interleaved(model: Path) -> bool:
    """Return whether the file of a model has the rotary halves of each head interleaved."""
    return read_header(model).architecture == LLAMA


def interleaved(rows: npt.NDArray[T], heads: int) -> npt.NDArray[T]:
    """Return the rows of queries or keys in the order of GGUF files of Llama models.

    Rotary embeddings turn pairs of rows. In a network the second row of a pair follows half a head after the first, in
    these files at once.
    """
    halves = rows.reshape(heads, 2, len(rows) // heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))


def halved(rows: npt.NDArray[T], heads: int) -> npt.NDArray[T]:
    """Return the rows of queries or keys with the halves of each head one after the other: it undoes `interleaved`."""
    pairs = rows.reshape(heads, len(rows) // heads // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(rows.shape))


def read_pairs(file: Path, model: Path) -> tuple[dict[tuple[int, str], tuple[Weights, Weights]], float]:
    """Return the LoRA weights in a GGUF file for the model in another one, as `write_adapter` gets them, and alpha."""
    reader = gguf.GGUFReader(file)
    alpha = reader.get_field("adapter.lora.alpha")
    assert alpha is not None, "the registry has checked that it is an adapter"
    header, parts = read_header(model), dict[tuple[int, str], dict[str, Weights]]()
    for tensor in reader.tensors:
        _, layer, projection, _, part = tensor.name.split(".")
        weights = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if header.architecture == LLAMA and part == "lora_b" and projection in ("attn_q", "attn_k"):
            weights = halved(weights, header.heads if projection == "attn_q" else header.kv_heads[int(layer)])
        parts.setdefault((int(layer), projection), {})[part] = weights
    pairs = {place: (pair["lora_a"], pair["lora_b"]) for place, pair in parts.items()}
    return pairs, float(alpha.contents())


def write_adapter(
    pairs: Mapping[tuple[int, str], tuple[Weights, Weights]],
    model: Path,
    path: Path,
    *,
    alpha: float,
    name: str = "frontdoor",
    half: bool = True,
) -> Path:
    """Write LoRA weights for the model in the GGUF file `model`, and return `path`.

    `pairs` are A [rank, inputs] and B [outputs, rank], by layer and by the projection's name in GGUF files. With `half`
    they are stored in 16 bits. The file appears when it is complete.
    """
    header = read_header(model)
    unfinished = path.with_name(f".{path.name}.part")
    writer = gguf.GGUFWriter(unfinished, header.architecture)
    writer.add_type("adapter")
    writer.add_name(name)
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    for (layer, projection), (a, b) in sorted(pairs.items()):
        if header.architecture == LLAMA and projection in ("attn_q", "attn_k"):
            b = interleaved(b, header.heads if projection == "attn_q" else header.kv_heads[layer])
        for part, weights in (("a", a), ("b", b)):
            stored = weights.astype(np.float16 if half else np.float32)
            writer.add_tensor(f"blk.{layer}.{projection}.weight.lora_{part}", np.ascontiguousarray(stored))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    unfinished.replace(path)
    return path
