"""Write an adapter that was trained with peft as a GGUF file, which llama.cpp applies to the quantised model."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
import numpy.typing as npt

from orchestrator.registry.gguf import read_header

_NAMES: Final = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""What the projections of a model are called in a GGUF file."""
_INTERLEAVED: Final = "llama"
"""The architecture whose GGUF files have the rows of queries and keys in another order than `transformers`."""
_KEY: Final = re.compile(r"model\.layers\.(\d+)\.(\w+\.\w+)\.lora_([AB])(?:\.\w+)?\.weight\Z")
Weights = npt.NDArray[np.float32]


def export(
    adapter: Mapping[str, Any], model: Path, path: Path, *, alpha: float, name: str = "frontdoor", half: bool = True
) -> Path:
    """Write the weights of an adapter for the model in the GGUF file `model`, and return `path`.

    `adapter` has peft's names, with tensors of PyTorch. With `half` weights are stored in 16 bits. Raises ValueError
    for a weight of no projection.
    """
    header = read_header(model)
    writer = gguf.GGUFWriter(path, header.architecture)
    writer.add_type("adapter")
    writer.add_name(name)
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    for key, tensor in sorted(adapter.items()):
        match = _KEY.search(key)
        if match is None or match[2] not in _NAMES:
            raise ValueError(f"{key} is no weight of a projection; accepted: {', '.join(_NAMES)}")
        layer, projection, part = int(match[1]), _NAMES[match[2]], match[3].lower()
        weights: Weights = tensor.float().numpy()
        if header.architecture == _INTERLEAVED and part == "b" and projection in ("attn_q", "attn_k"):
            heads = header.heads if projection == "attn_q" else header.kv_heads[layer]
            weights = interleaved(weights, heads)
        stored = weights.astype(np.float16 if half else np.float32)
        writer.add_tensor(f"blk.{layer}.{projection}.weight.lora_{part}", np.ascontiguousarray(stored))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def interleaved(rows: Weights, heads: int) -> Weights:
    """Return the rows of queries or keys in the order of GGUF files of Llama models.

    Rotary embeddings turn pairs of rows. In `transformers` the second row of a pair follows half a head after the
    first, in these files at once.
    """
    halves = rows.reshape(heads, 2, len(rows) // heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)
