"""Write an adapter that was trained with peft as a GGUF file, which llama.cpp applies to the quantised model."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from orchestrator.memrl.parl.weights import Weights, write_adapter

_NAMES: Final = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # what the projections of a model are called in a GGUF file
_KEY: Final = re.compile(r"model\.layers\.(\d+)\.(\w+\.\w+)\.lora_([AB])(?:\.\w+)?\.weight\Z")


def export(
    adapter: Mapping[str, Any], model: Path, path: Path, *, alpha: float, name: str = "frontdoor", half: bool = True
) -> Path:
    """Write the weights of an adapter for the model in the GGUF file `model`, and return `path`.

    `adapter` has peft's names, with tensors of PyTorch. With `half` weights are stored in 16 bits. Raises ValueError
    for a weight of no projection.
    """
    parts: dict[tuple[int, str], dict[str, Weights]] = {}
    for key, tensor in adapter.items():
        match = _KEY.search(key)
        if match is None or match[2] not in _NAMES:
            raise ValueError(f"{key} is no weight of a projection; accepted: {', '.join(_NAMES)}")
        parts.setdefault((int(match[1]), _NAMES[match[2]]), {})[match[3]] = tensor.float().numpy()
    pairs = {place: (pair["A"], pair["B"]) for place, pair in parts.items()}
    return write_adapter(pairs, model, path, alpha=alpha, name=name, half=half)
