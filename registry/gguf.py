"""Read the metadata of a GGUF file: sizes, context, vocabulary, chat template, and how much the caches of a model hold.

A model split into several files (`name-00001-of-00003.gguf`, …) is read through its first one; the others must be
there. What is cached per token and per sequence follows llama.cpp's `llama_model::create_memory` and the constructors
of its caches. When they differ from file to file in ways that a header does not state, it is an upper bound.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.registry.architectures import COMPRESSED, family
from orchestrator.registry.errors import GgufError
from orchestrator.registry.gguf_reader import FILE_TYPES, MAGIC, POOLING, Fields, RawHeader, read_raw

MAX_LAYERS: Final = 4096
NO_MODELS: Final = ("adapter", "imatrix", "mmproj")
EXPERTS: Final = "_exps."  # part of the names of tensors that hold all experts of a layer
PIECE: Final = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
INDEXED_RATIO: Final = 4  # layers that compress their keys by this much also keep keys of an index (DeepSeek V4)


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """The metadata of a model."""

    architecture: str  # llama.cpp's name
    name: str  # the model's, or the file's
    file_type: str  # of most weights, such as Q4_K_M, or `unknown`
    parameters: int  # number of weights
    active_parameters: int  # those that compute a token: of a mixture's experts only the ones that are used
    weight_bytes: int  # with adapters
    file_bytes: int  # of all its files
    context_length: int  # longest training sequence in tokens
    layers: int  # with MTP heads
    mtp_heads: int  # at the end of the layers
    mtp_cell_bytes: int  # that a head caches per token, in 16 bits
    read_layers: tuple[int, ...]  # of its target, whose inputs an EAGLE-3 head reads; none for any other model
    read_width: int  # length of these inputs
    embedding: int  # length of a token's vector
    heads: int  # attention heads of the layer with most
    kv_heads: tuple[int, ...]  # per layer; 0 for one that caches no keys and values, as recurrent layers
    key_length: int  # per head
    value_length: int  # per head
    cached_keys: int  # numbers that the KV cache holds per token as keys, over all layers
    cached_values: int  # the same as values
    feed_forward: int  # of the widest layer, with the experts of a token together
    vocab_size: int
    vocab_digest: str  # equal if and only if tokens, their order and the tokenizer are
    experts: int  # per layer; 0 without a mixture of experts
    experts_used: int  # per token
    state_bytes: int  # upper bound of a sequence's recurrent state; 0 for a transformer
    has_windows: bool  # whether it has layers with a sliding window
    pooling: str | None  # of an embedding model; None for a generating one
    chat_template: str | None  # Jinja


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """The attention of a model, as its header states it."""

    kv_heads: tuple[int, ...]  # per layer
    heads: int  # of the layer with most
    key_length: int  # per head
    value_length: int  # per head
    embedding: int
    feed_forward: tuple[int, ...]  # per layer


def read_header(path: Path) -> GgufHeader:
    """Read the header of the model in `path`. Raises GgufError, whatever the file holds."""
    first = read_raw(path)
    pieces = [first, *(read_raw(piece) for piece in _other_pieces(path, first))]
    return _header(path, Fields(path, first), pieces)


def begins_as_gguf(path: Path) -> bool:
    """Return whether a file starts like a GGUF file. Raises OSError."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_adapter(path: Path, model: GgufHeader) -> int:
    """Return the bytes of the LoRA adapter in `path`. Raises GgufError if it is no adapter for this architecture."""
    raw = read_raw(path)
    kind, way = raw.entries.get("general.type", "model"), raw.entries.get("adapter.type", "none")
    if kind != "adapter" or way != "lora":
        raise GgufError(path, f"is no LoRA adapter: its general.type is {kind!r}, its adapter.type {way!r}")
    architecture = raw.entries.get("general.architecture", "")
    if architecture != model.architecture:
        raise GgufError(path, f"is an adapter for {architecture!r}, and the model is {model.architecture!r}")
    return sum(tensor.bytes for tensor in raw.tensors)


def pieces(path: Path) -> tuple[Path, ...]:
    """Return all files of a model, given its first one: `path` alone, unless the model is split."""
    match = PIECE.fullmatch(path.name)
    if match is None or int(match["number"]) != 1:
        return (path,)
    count = max(1, int(match["count"]))
    return tuple(path.with_name(f"{match['stem']}-{n:05d}-of-{match['count']}.gguf") for n in range(1, count + 1))


def _other_pieces(path: Path, first: RawHeader) -> list[Path]:
    count = first.entries.get("split.count", 1)
    if not isinstance(count, int) or count <= 1:
        return []
    match = PIECE.fullmatch(path.name)
    if match is None or int(match["count"]) != count:
        raise GgufError(path, f"is one of {count} pieces; accepted: a name that ends in -00001-of-{count:05d}.gguf")
    if int(match["number"]) != 1:
        raise GgufError(path, f"is piece {int(match['number'])} of {count}; accepted: the first one")
    other_pieces = list(pieces(path)[1:])
    if missing := [piece.name for piece in other_pieces if not piece.exists()]:
        named = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise GgufError(path, f"is split into {count} files, and {named} {_is(missing)} not next to it")
    return other_pieces


def _is(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _header(path: Path, fields: Fields, pieces: list[RawHeader]) -> GgufHeader:
    tensors = [tensor for piece in pieces for tensor in piece.tensors]
    kind = fields.text("general.type", "model")
    if kind in NO_MODELS:
        raise fields.error(f"holds no model, but one of type {kind!r}")
    if not tensors:
        raise fields.error("holds no tensors: it is a vocabulary or a list of settings, not a model")
    layers = fields.size("block_count", most=MAX_LAYERS)
    no_heads = (0,) * layers
    heads = fields.per_layer("attention.head_count", layers, no_heads)
    attention = _attention(fields, heads)
    recurrent = _recurrent_layers(fields, layers)
    kv_heads = _kept_heads(fields, attention, recurrent)
    keys, values = _numbers(fields, attention, kv_heads)
    compressed, state = _compressed(fields, attention)
    state += _recurrent_state(fields, attention) * _count_recurrent(attention, recurrent)
    vocabulary = fields.vocabulary()
    tokenizer = fields.text("tokenizer.ggml.model", ""), fields.text("tokenizer.ggml.pre", "")
    experts_used = max(fields.per_layer("expert_used_count", layers, no_heads), default=0)
    expert = max(fields.per_layer("expert_feed_forward_length", layers, no_heads), default=0)
    of_experts = experts_used * expert + fields.size("expert_shared_feed_forward_length", 0)
    experts, parameters = fields.size("expert_count", 0), sum(tensor.elements for tensor in tensors)
    in_experts = sum(tensor.elements for tensor in tensors if EXPERTS in tensor.name)
    return GgufHeader(
        architecture=fields.architecture,
        name=fields.text("general.name", path.stem),
        file_type=fields.named("general.file_type", FILE_TYPES) or "unknown",
        parameters=parameters,
        active_parameters=parameters - in_experts * max(0, experts - experts_used) // max(1, experts),
        weight_bytes=sum(tensor.bytes for tensor in tensors),
        file_bytes=sum(piece.file_bytes for piece in pieces),
        context_length=fields.size("context_length"),
        layers=layers,
        mtp_heads=fields.size("nextn_predict_layers", 0),
        mtp_cell_bytes=_mtp_cell_bytes(fields, attention),
        read_layers=tuple(map(int, fields.list_of("target_layers", 1) or ())),
        read_width=fields.size("target_hidden_size", 0),
        embedding=attention.embedding,
        heads=attention.heads,
        kv_heads=kv_heads,
        key_length=attention.key_length,
        value_length=attention.value_length,
        cached_keys=keys + compressed,
        cached_values=values,
        feed_forward=max(*attention.feed_forward, of_experts, 0),
        vocab_size=vocabulary.length,
        vocab_digest="/".join((*tokenizer, vocabulary.digest)),
        experts=experts,
        experts_used=experts_used,
        state_bytes=4 * state,  # F32
        has_windows=fields.size("attention.sliding_window", 0) > 0,
        pooling=fields.named(f"{fields.architecture}.pooling_type", POOLING),
        chat_template=fields.text("tokenizer.chat_template", "") or None,
    )


def _attention(fields: Fields, heads: tuple[int, ...]) -> Attention:
    layers, most_heads = len(heads), max(heads, default=0)
    embedding = fields.size("embedding_length")
    head = embedding // most_heads if most_heads else 0
    return Attention(
        kv_heads=fields.per_layer("attention.head_count_kv", layers, heads),
        heads=most_heads,
        key_length=fields.size("attention.key_length", head),
        value_length=fields.size("attention.value_length", head),
        embedding=embedding,
        feed_forward=fields.per_layer("feed_forward_length", layers, (0,) * layers),
    )


def _recurrent_layers(fields: Fields, layers: int) -> tuple[bool, ...]:
    # All False if the header only states it by heads, see `_count_recurrent`.
    if (stated := fields.list_of("attention.recurrent_layers", layers)) is not None:
        return tuple(map(bool, stated[:layers]))
    interval, trunk = fields.size("full_attention_interval", 0), layers - fields.size("nextn_predict_layers", 0)
    return tuple(bool(interval) and layer < trunk and (layer + 1) % interval != 0 for layer in range(layers))


def _mtp_cell_bytes(fields: Fields, attention: Attention) -> int:
    values = 0 if _is_latent(fields) else attention.value_length
    return 2 * max(attention.kv_heads[-1:], default=0) * (attention.key_length + values)


def _kept_heads(fields: Fields, attention: Attention, recurrent: tuple[bool, ...]) -> tuple[int, ...]:
    # Layers that predict further tokens are for drafts, and have a cache in a context of their own. The last layers of
    # some models use the cache of an earlier one.
    layers = len(attention.kv_heads)
    trunk = layers - fields.size("nextn_predict_layers", 0)
    if trunk <= 0 or (family(fields.architecture) == "hybrid" and not any(recurrent)):
        trunk = layers
    end = min(trunk, layers - fields.size("attention.shared_kv_layers", 0))
    busy = _does_otherwise(attention) if family(fields.architecture) == "hybrid" else (False,) * layers
    rows = enumerate(zip(attention.kv_heads, recurrent, busy, strict=True))
    return tuple(0 if skips or other or layer >= end else heads for layer, (heads, skips, other) in rows)


def _numbers(fields: Fields, attention: Attention, kv_heads: tuple[int, ...]) -> tuple[int, int]:
    layers = len(kv_heads)
    key_lengths = _lengths(fields, "key_length", attention.key_length, layers)
    value_lengths = _lengths(fields, "value_length", attention.value_length, layers)
    latent = _is_latent(fields)
    keys = sum(heads * length for heads, length in zip(kv_heads, key_lengths, strict=True))
    values = 0 if latent else sum(heads * length for heads, length in zip(kv_heads, value_lengths, strict=True))
    # Sparse attention keeps the keys of an index, with one head, and without latent attention values that are not used.
    index = 0 if fields.architecture in COMPRESSED else fields.size("attention.indexer.key_length", 0)
    types = fields.list_of("attention.indexer.types", layers) or (1,) * layers
    indexed = sum(1 for heads, kind in zip(kv_heads, types, strict=False) if heads and kind) if index else 0
    return keys + indexed * index, values + (0 if latent else indexed * attention.value_length)


def _is_latent(fields: Fields) -> bool:
    """Whether the cache has one latent vector, from which the values come, too (multi-head latent attention)."""
    return fields.architecture in COMPRESSED or fields.size("attention.key_length_mla", 0) > 0


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
    # As if every layer without attention had a state, or every layer.
    if any(recurrent):
        return sum(recurrent)
    rows = zip(attention.kv_heads, _does_otherwise(attention), strict=True)
    return sum(heads == 0 and not other for heads, other in rows) or len(attention.kv_heads)


def _does_otherwise(attention: Attention) -> tuple[bool, ...]:
    # A layer of Nemotron-H does only one thing, so one with a feed-forward part neither attends nor has a state.
    parts = attention.feed_forward
    single = any(parts) and not all(parts)
    return tuple(single and part > 0 for part in parts)


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
