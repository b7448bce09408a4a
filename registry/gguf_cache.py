"""Read from a GGUF header how much llama.cpp's caches hold per token and per sequence.

This follows `llama_model::create_memory` and the constructors of its caches. Where they differ from file to file in
ways that a header does not state, the result is an upper bound.
"""

from dataclasses import dataclass
from typing import Final

from orchestrator.registry.architectures import COMPRESSED, family
from orchestrator.registry.gguf_reader import Fields

INDEXED_RATIO: Final = 4  # layers that compress their keys by this much also keep keys of an index (DeepSeek V4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """The attention of a model, as its header states it."""

    kv_heads: tuple[int, ...]  # per layer
    heads: int  # of the layer with most
    key_length: int  # per head
    value_length: int  # per head
    embedding: int
    feed_forward: tuple[int, ...]  # per layer


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheNumbers:
    """What is cached. A number of `keys` or `values` takes as many bytes as the cache's type says."""

    kv_heads: tuple[int, ...]  # per layer; 0 for one that caches no keys and values of its own
    keys: int  # per token, over all layers
    values: int  # per token, over all layers
    state_bytes: int  # per sequence


def read_cache(fields: Fields, attention: Attention) -> CacheNumbers:
    """Return what the caches of a model hold. Raises GgufError."""
    recurrent = _recurrent_layers(fields, len(attention.kv_heads))
    kv_heads = _kept_heads(fields, attention, recurrent)
    keys, values = _numbers(fields, attention, kv_heads)
    compressed, state = _compressed(fields, attention)
    state += _recurrent_state(fields, attention) * _count_recurrent(attention, recurrent)
    return CacheNumbers(kv_heads=kv_heads, keys=keys + compressed, values=values, state_bytes=4 * state)  # F32


def _recurrent_layers(fields: Fields, layers: int) -> tuple[bool, ...]:
    # All False if the header only states it by heads, see `_count_recurrent`.
    if (stated := fields.list_of("attention.recurrent_layers", layers)) is not None:
        return tuple(map(bool, stated[:layers]))
    interval, trunk = fields.size("full_attention_interval", 0), layers - fields.size("nextn_predict_layers", 0)
    return tuple(bool(interval) and layer < trunk and (layer + 1) % interval != 0 for layer in range(layers))


def _kept_heads(fields: Fields, attention: Attention, recurrent: tuple[bool, ...]) -> tuple[int, ...]:
    # Layers that predict further tokens are for drafts, and have a cache in a context of their own. The last layers of
    # some models use the cache of an earlier one.
    layers = len(attention.kv_heads)
    trunk = layers - fields.size("nextn_predict_layers", 0)
    if trunk <= 0 or (family(fields.architecture) == "hybrid" and not any(recurrent)):
        trunk = layers
    end = min(trunk, layers - fields.size("attention.shared_kv_layers", 0))
    rows = enumerate(zip(attention.kv_heads, recurrent, strict=True))
    return tuple(0 if skips or layer >= end else heads for layer, (heads, skips) in rows)


def _numbers(fields: Fields, attention: Attention, kv_heads: tuple[int, ...]) -> tuple[int, int]:
    layers = len(kv_heads)
    key_lengths = _lengths(fields, "key_length", attention.key_length, layers)
    value_lengths = _lengths(fields, "value_length", attention.value_length, layers)
    # Multi-head latent attention caches one latent vector, from which the values come, too.
    latent = fields.architecture in COMPRESSED or fields.size("attention.key_length_mla", 0) > 0
    keys = sum(heads * length for heads, length in zip(kv_heads, key_lengths, strict=True))
    values = 0 if latent else sum(heads * length for heads, length in zip(kv_heads, value_lengths, strict=True))
    # Sparse attention keeps the keys of an index, with one head, and without latent attention values that are not used.
    index = 0 if fields.architecture in COMPRESSED else fields.size("attention.indexer.key_length", 0)
    types = fields.list_of("attention.indexer.types", layers) or (1,) * layers
    indexed = sum(1 for heads, kind in zip(kv_heads, types, strict=False) if heads and kind) if index else 0
    return keys + indexed * index, values + (0 if latent else indexed * attention.value_length)


def _lengths(fields: Fields, key: str, length: int, layers: int) -> tuple[int, ...]:
    # Per layer, since heads of layers with a sliding window may have another length.
    windowed = fields.size(f"attention.{key}_swa", length)
    pattern = fields.list_of("attention.sliding_window_pattern", layers)
    if pattern is None:
        return (max(length, windowed),) * layers
    return tuple(windowed if has_window else length for has_window in pattern[:layers])


def _compressed(fields: Fields, attention: Attention) -> tuple[int, int]:
    # DeepSeek V4: numbers per token of keys that stand for several tokens, and per sequence of the state that makes
    # them. A ratio of 0 is for a layer without such keys.
    if fields.architecture not in COMPRESSED:
        return 0, 0
    ratios = [int(r) for r in fields.list_of("attention.compress_ratios", 1) or ()][: len(attention.kv_heads)]
    index, keys, state = fields.size("attention.indexer.key_length", 0), 0, 0
    for ratio in filter(None, ratios):
        width = attention.key_length + (index if ratio == INDEXED_RATIO else 0)
        keys += -(-width // ratio)
        state += 2 * ratio * width * (4 if ratio == INDEXED_RATIO else 1)
    return keys, state


def _count_recurrent(attention: Attention, recurrent: tuple[bool, ...]) -> int:
    # As if every layer without attention had a state, or every layer; a layer of Nemotron-H does only one thing, so one
    # with a feed-forward part has none.
    if any(recurrent):
        return sum(recurrent)
    parts = attention.feed_forward
    single = any(parts) and not all(parts)
    without = [heads == 0 and not (single and part) for heads, part in zip(attention.kv_heads, parts, strict=True)]
    return sum(without) or len(without)


def _recurrent_state(fields: Fields, attention: Attention) -> int:
    # Numbers of a layer's state, for all kinds of recurrent layers.
    inner = fields.size("ssm.inner_size", 0)
    state = fields.size("ssm.state_size", 0)
    groups = fields.size("ssm.group_count", 0)
    kernel = fields.size("ssm.conv_kernel", 0)
    wkv_head = fields.size("wkv.head_size", 0)
    short_kernel = fields.size("shortconv.l_cache", 0)  # as in LFM2
    delta_head = fields.size("kda.head_dim", 0)  # as in Kimi Linear
    convolution = max(kernel - 1, 0) * (inner + 2 * groups * state)
    numbers = convolution + inner * state + (attention.embedding * (2 + wkv_head) if wkv_head else 0)
    numbers += attention.embedding * max(short_kernel - 1, 0)
    return numbers + attention.heads * delta_head * (3 * max(kernel - 1, 3) + delta_head)
