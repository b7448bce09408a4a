"""What the caches of llama.cpp hold per token and per sequence, by the keys of a header."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.registry.gguf import GgufHeader, read_header
from orchestrator.registry.memory import estimate
from orchestrator.registry.options import LoadOptions, state_sequences
from tests.registry.conftest import WriteGguf

Read = Callable[..., GgufHeader]
STATE = {"ssm.conv_kernel": 4, "ssm.state_size": 8, "ssm.group_count": 2, "ssm.inner_size": 16}
STATE_BYTES = 4 * (3 * (16 + 2 * 2 * 8) + 8 * 16)  # of a layer: a convolution over four tokens, and eight numbers each


@pytest.fixture
def read(tmp_path: Path, write_gguf: WriteGguf) -> Read:
    """Write a file of four layers with two KV heads of 16 numbers, and read its header."""

    def read(architecture: str = "llama", metadata: dict[str, Any] | None = None, **other: Any) -> GgufHeader:
        shape = {"layers": 4, "embedding": 64, "heads": 4, "kv_heads": 2} | other
        return read_header(write_gguf(tmp_path / "m.gguf", architecture=architecture, metadata=metadata or {}, **shape))

    return read


def cached(header: GgufHeader) -> tuple[int, int]:
    return header.cached_keys, header.cached_values


def test_every_layer_of_a_transformer_caches_its_heads(read: Read) -> None:
    assert cached(read()) == (4 * 2 * 16, 4 * 2 * 16)
    assert cached(read(metadata={"attention.value_length": 8})) == (4 * 2 * 16, 4 * 2 * 8)


@pytest.mark.parametrize("stated", [{"full_attention_interval": 2}, {"attention.recurrent_layers": [1, 0, 1, 0]}])
def test_recurrent_layers_have_a_state_instead_of_a_cache(read: Read, stated: dict[str, Any]) -> None:
    header = read("qwen35", STATE | stated)
    assert header.kv_heads == (0, 2, 0, 2)
    assert cached(header) == (2 * 2 * 16, 2 * 2 * 16)
    assert header.state_bytes == 2 * STATE_BYTES


def test_layers_for_drafts_cache_nothing(read: Read) -> None:
    hybrid = read("qwen35", STATE | {"full_attention_interval": 2, "nextn_predict_layers": 1}, layers=5)
    assert (hybrid.kv_heads, hybrid.state_bytes) == ((0, 2, 0, 2, 0), 2 * STATE_BYTES)
    assert read("glm4moe", {"nextn_predict_layers": 1}).kv_heads == (2, 2, 2, 0)
    assert read("glm4moe", {"nextn_predict_layers": 4}).kv_heads == (2, 2, 2, 2), "a file of nothing else drafts"
    # llama.cpp filters by other keys for these, so all layers count that do nothing else.
    assert read("nemotron_h_moe", {"nextn_predict_layers": 1}).kv_heads == (2, 2, 2, 2)
    several = {"nextn_predict_layers": 1, "attention.head_count_kv": [2, 0, 0, 2], "feed_forward_length": [0, 0, 9, 9]}
    assert read("nemotron_h_moe", several).kv_heads == (2, 0, 0, 0)


def test_a_head_that_drafts_caches_one_latent_vector_if_its_model_does(read: Read) -> None:
    draft = {"nextn_predict_layers": 1, "attention.value_length": 8}
    assert read("glm4moe", draft).mtp_cell_bytes == 2 * 2 * (16 + 8)
    assert read("glm-dsa", draft | {"attention.key_length_mla": 16}).mtp_cell_bytes == 2 * 2 * 16


def test_layers_that_share_a_cache_have_none_of_their_own(read: Read) -> None:
    assert read("gemma4", {"attention.shared_kv_layers": 3}).kv_heads == (2, 0, 0, 0)


def test_heads_with_a_window_may_have_another_length(read: Read) -> None:
    window = {"attention.key_length_swa": 8, "attention.value_length_swa": 4}
    pattern = window | {"attention.sliding_window_pattern": [1, 1, 1, 0]}
    assert cached(read("gemma4", pattern)) == (2 * (3 * 8 + 16), 2 * (3 * 4 + 16))
    assert cached(read("gemma4", window)) == (4 * 2 * 16, 4 * 2 * 16), "it is not known which layers have one"


def test_latent_attention_caches_no_values(read: Read) -> None:
    latent = {"attention.key_length_mla": 32, "attention.value_length_mla": 32}
    assert cached(read("deepseek2", latent, kv_heads=1)) == (4 * 16, 0)


def test_sparse_attention_caches_an_index(read: Read) -> None:
    latent = {"attention.key_length_mla": 32, "attention.value_length_mla": 32}
    index = {"attention.indexer.key_length": 6}
    assert cached(read("glm-dsa", latent | index, kv_heads=1)) == (4 * 16 + 4 * 6, 0)
    some = {"attention.indexer.types": [1, 0, 0, 1]}
    assert cached(read("glm-dsa", latent | index | some, kv_heads=1)) == (4 * 16 + 2 * 6, 0)
    assert cached(read("minimax-m3", index)) == (4 * 2 * 16 + 4 * 6, 4 * 2 * 16 + 4 * 16)


def test_a_layer_of_nemotron_with_experts_has_no_state(read: Read) -> None:
    shape = {"kv_heads": [0, 0, 2, 0], "metadata": STATE}
    assert read("nemotron_h_moe", feed_forward=[0, 0, 0, 8], **shape).state_bytes == 2 * STATE_BYTES
    assert read("lfm2moe", feed_forward=8, **shape).state_bytes == 3 * STATE_BYTES


def test_compressed_keys_come_on_top_of_the_window_for_each_sequence(read: Read) -> None:
    compress = {"attention.compress_ratios": [0, 4, 128, 4, 0], "attention.indexer.key_length": 8}
    header = read("deepseek4", compress, kv_heads=1)
    assert cached(header) == (4 * 16 + 6 + 1 + 6, 0)
    assert header.state_bytes == 4 * (2 * 8 * 4 * 24 + 2 * 128 * 16)
    kv_cache = estimate(header, LoadOptions(context=256, slots=3)).kv_cache
    sequences = state_sequences(3)
    assert kv_cache == (2 * header.cached_keys * 256 * 3 + header.state_bytes) * sequences


def test_the_experts_of_a_token_count_as_one_layer(read: Read) -> None:
    experts = {"expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 100}
    assert read("qwen3moe", experts).feed_forward == 300
    assert read("qwen3moe", experts | {"expert_shared_feed_forward_length": 50}).feed_forward == 350
    several = read("nemotron_h_moe", experts | {"expert_used_count": [1, 3, 2, 1]})
    assert (several.experts, several.experts_used) == (8, 3)
