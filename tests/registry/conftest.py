from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import gguf
import numpy as np
import pytest

TOKENS = tuple(f"t{number}" for number in range(96))
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
WriteGguf = Callable[..., Path]


def write_model(
    path: Path,
    *,
    architecture: str = "llama",
    context: int = 2048,
    layers: int = 2,
    embedding: int = 64,
    heads: int = 4,
    kv_heads: int | list[int] = 2,
    feed_forward: int | list[int] | None = None,
    tokens: Iterable[str] = TOKENS,
    template: str | None = TEMPLATE,
    experts: int = 0,
    quantised: bool = False,
    pooling: int | None = None,
    name: str = "a test model",
    metadata: Mapping[str, int | Sequence[int]] = MappingProxyType({}),
) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(name)
    if pooling is not None:
        writer.add_pooling_type(gguf.PoolingType(pooling))
    writer.add_context_length(context)
    writer.add_block_count(layers)
    writer.add_embedding_length(embedding)
    writer.add_feed_forward_length(3 * embedding if feed_forward is None else feed_forward)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0 if quantised else gguf.LlamaFileType.ALL_F32)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(2)
    for key, value in metadata.items():
        add = writer.add_uint32 if isinstance(value, int) else writer.add_array
        add(f"{architecture}.{key}", value)
    words = list(tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(words)
    writer.add_token_merges(["a b", "c d"])
    if template is not None:
        writer.add_chat_template(template)
    weights = np.zeros((len(words), embedding), dtype=np.float32)
    if quantised:
        raw = gguf.quantize(weights, gguf.GGMLQuantizationType.Q8_0)
        writer.add_tensor("token_embd.weight", raw, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    else:
        writer.add_tensor("token_embd.weight", weights)
    if experts:
        writer.add_tensor("blk.0.ffn_up_exps.weight", np.zeros((experts, 1, embedding), dtype=np.float32))
    writer.add_tensor("output_norm.weight", np.ones(embedding, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_adapter(path: Path, architecture: str = "llama", general: str = "adapter", way: str = "lora") -> Path:
    """Write a LoRA adapter of 256 bytes of weights, and return its path."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type(general)
    writer.add_string("adapter.type", way)
    writer.add_float32("adapter.lora.alpha", 4.0)
    for part in "ab":
        writer.add_tensor(f"blk.0.attn_q.weight.lora_{part}", np.zeros((4, 8), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="session")
def write_gguf() -> WriteGguf:
    """Write a small GGUF file with the real `gguf` package, and return its path."""
    return write_model
