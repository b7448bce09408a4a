"""Read the metadata of a GGUF file: sizes, context, vocabulary, chat template.

A model split into several files (`name-00001-of-00003.gguf`, …) is read through its first one; the others must be
there.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.registry.errors import GgufError
from orchestrator.registry.gguf_layout import FILE_TYPES, POOLING
from orchestrator.registry.gguf_reader import MAGIC, Array, RawHeader, Scalar, read_raw

MAX_LAYERS: Final = 4096
MAX_SIZE: Final = 1 << 31
NO_MODELS: Final = ("adapter", "imatrix", "mmproj")
PIECE: Final = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """The metadata of a model."""

    architecture: str  # llama.cpp's name
    name: str  # the model's, or the file's
    file_type: str  # of most weights, such as Q4_K_M, or `unknown`
    parameters: int  # number of weights
    weight_bytes: int  # with adapters
    file_bytes: int  # of all its files
    context_length: int  # longest training sequence in tokens
    layers: int
    embedding: int  # length of a token's vector
    heads: int  # attention heads of the layer with most
    kv_heads: tuple[int, ...]  # per layer; 0 for a layer without attention, as in hybrid models
    key_length: int  # per head
    value_length: int  # per head
    feed_forward: int  # of the widest layer
    vocab_size: int
    vocab_digest: str  # equal if and only if tokens, their order and the tokenizer are
    experts: int  # per layer; 0 without a mixture of experts
    experts_used: int  # per token
    state_bytes: int  # upper bound of a sequence's recurrent state; 0 for a transformer
    pooling: str | None  # of an embedding model; None for a generating one
    chat_template: str | None  # Jinja


def read_header(path: Path) -> GgufHeader:
    """Read the header of the model in `path`. Raises GgufError, whatever the file holds."""
    first = read_raw(path)
    pieces = [first, *(read_raw(piece) for piece in _other_pieces(path, first))]
    return _Fields(path, first).header(pieces)


def begins_as_gguf(path: Path) -> bool:
    """Return whether a file starts like a GGUF file. Raises OSError."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_adapter(path: Path, model: GgufHeader) -> int:
    """Return the bytes of the LoRA adapter in `path`. Raises GgufError if it is none for this architecture."""
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
        raise GgufError(path, f"is split into {count} files, and {named} {_is(missing)} not beside it")
    return other_pieces


def _is(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


class _Fields:
    def __init__(self, path: Path, raw: RawHeader) -> None:
        self._path = path
        self._entries = raw.entries  # values of any type
        self._architecture = self._text("general.architecture")

    def header(self, pieces: list[RawHeader]) -> GgufHeader:
        tensors = [tensor for piece in pieces for tensor in piece.tensors]
        kind = self._text("general.type", "model")
        if kind in NO_MODELS:
            raise GgufError(self._path, f"holds no model, but one of type {kind!r}")
        if not tensors:
            raise GgufError(self._path, "holds no tensors: it is a vocabulary or a list of settings, not a model")
        layers = self._size("block_count", most=MAX_LAYERS)
        embedding = self._size("embedding_length")
        no_heads = (0,) * layers
        heads = self._per_layer("attention.head_count", layers, no_heads)
        most_heads = max(heads, default=0)
        head = embedding // most_heads if most_heads else 0
        kv_heads = self._per_layer("attention.head_count_kv", layers, heads)
        return GgufHeader(
            architecture=self._architecture,
            name=self._text("general.name", self._path.stem),
            file_type=self._named("general.file_type", FILE_TYPES) or "unknown",
            parameters=sum(tensor.elements for tensor in tensors),
            weight_bytes=sum(tensor.bytes for tensor in tensors),
            file_bytes=sum(piece.file_bytes for piece in pieces),
            context_length=self._size("context_length"),
            layers=layers,
            embedding=embedding,
            heads=most_heads,
            kv_heads=kv_heads,
            key_length=self._size("attention.key_length", head),
            value_length=self._size("attention.value_length", head),
            feed_forward=max(self._per_layer("feed_forward_length", layers, no_heads), default=0),
            vocab_size=self._vocabulary().length,
            vocab_digest=self._vocab_digest(),
            experts=self._size("expert_count", 0),
            experts_used=self._size("expert_used_count", 0),
            state_bytes=self._state_bytes(kv_heads, embedding, most_heads),
            pooling=self._named(f"{self._architecture}.pooling_type", POOLING),
            chat_template=self._text("tokenizer.chat_template", "") or None,
        )

    def _state_bytes(self, kv_heads: tuple[int, ...], embedding: int, heads: int) -> int:
        # In F32, as llama.cpp has it, and an upper bound: as if every layer without attention had one, or every layer.
        inner = self._size("ssm.inner_size", 0)
        state = self._size("ssm.state_size", 0)
        groups = self._size("ssm.group_count", 0)
        kernel = self._size("ssm.conv_kernel", 0)
        wkv_head = self._size("wkv.head_size", 0)
        short_kernel = self._size("shortconv.l_cache", 0)  # as in LFM2
        delta_head = self._size("kda.head_dim", 0)  # as in Kimi Linear
        convolution = max(kernel - 1, 0) * (inner + 2 * groups * state)
        per_layer = convolution + inner * state + (embedding * (2 + wkv_head) if wkv_head else 0)
        per_layer += embedding * max(short_kernel - 1, 0)
        per_layer += heads * delta_head * (3 * max(kernel - 1, 3) + delta_head)
        return (kv_heads.count(0) or len(kv_heads)) * per_layer * 4

    def _vocabulary(self) -> Array:
        tokens = self._entries.get("tokenizer.ggml.tokens")
        if not isinstance(tokens, Array) or not tokens.length:
            raise GgufError(self._path, "holds no vocabulary (tokenizer.ggml.tokens)")
        return tokens

    def _vocab_digest(self) -> str:
        cut = self._text("tokenizer.ggml.model", ""), self._text("tokenizer.ggml.pre", "")
        return "/".join((*cut, self._vocabulary().digest))

    def _text(self, key: str, default: str | None = None) -> str:
        value = self._entries.get(key, default)
        if isinstance(value, str):
            return value
        raise GgufError(self._path, f"{key} is missing" if value is None else f"{key} is not a text")

    def _named(self, key: str, names: Mapping[int, str]) -> str | None:
        value = self._entries.get(key)
        return names.get(value) if isinstance(value, int) else None

    def _size(self, key: str, default: int | None = None, most: int = MAX_SIZE) -> int:
        full = f"{self._architecture}.{key}"
        value = self._entries.get(full, default)
        if value is None:
            raise GgufError(self._path, f"{full} is missing")
        return self._checked(full, value, most)

    def _per_layer(self, key: str, layers: int, default: tuple[int, ...]) -> tuple[int, ...]:
        full = f"{self._architecture}.{key}"
        if full not in self._entries:
            return default
        value = self._entries[full]
        if not isinstance(value, Array):  # one number for all layers
            return (self._checked(full, value, MAX_SIZE),) * layers
        if len(value.numbers) != layers:
            raise GgufError(self._path, f"{full} has {value.length} items, but the model has {layers} layers")
        return tuple(self._checked(full, number, MAX_SIZE) for number in value.numbers)

    def _checked(self, full: str, value: Scalar | Array, most: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            shown = f"an array of {value.length}" if isinstance(value, Array) else repr(value)[:80]
            raise GgufError(self._path, f"{full} is {shown}; accepted: a whole number up to {most:,}")
        return value
