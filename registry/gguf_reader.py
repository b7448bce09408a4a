"""Read a GGUF header: key-values, by key and type, and tensor descriptions, never the tensors themselves.

Every count and length is compared with the remaining bytes before use, so a corrupt header costs neither memory nor
time. Of arrays only the length, the first numbers and a digest are read.
"""

import hashlib
import math
import os
import stat
import struct
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from orchestrator.registry.errors import GgufError

# value type -> (struct code, bytes); strings and arrays are handled apart
SCALARS: Final[dict[int, tuple[str, int]]] = {
    0: ("B", 1),
    1: ("b", 1),
    2: ("H", 2),
    3: ("h", 2),
    4: ("I", 4),
    5: ("i", 4),
    6: ("f", 4),
    7: ("?", 1),
    10: ("Q", 8),
    11: ("q", 8),
    12: ("d", 8),
}
STRING: Final = 8
ARRAY: Final = 9

# tensor type -> (name, elements in a block, bytes of a block)
TENSOR_TYPES: Final[dict[int, tuple[str, int, int]]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}

FILE_TYPES: Final[dict[int, str]] = {
    **dict(enumerate("F32 F16 Q4_0 Q4_1".split())),
    **dict(enumerate("Q8_0 Q5_0 Q5_1 Q2_K Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K".split(), 7)),
    **dict(enumerate("IQ2_XXS IQ2_XS Q2_K_S IQ3_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S IQ3_M IQ2_S IQ2_M IQ4_XS".split(), 19)),
    **dict(enumerate("IQ1_M BF16".split(), 31)),
    **dict(enumerate("TQ1_0 TQ2_0 MXFP4_MOE NVFP4 Q1_0".split(), 36)),
}

# what `pooling_type` means; 0 is none
POOLING: Final[dict[int, str]] = {1: "mean", 2: "cls", 3: "last", 4: "rank"}


MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
MAX_ENTRIES: Final = 1 << 16
MAX_TENSORS: Final = 1 << 20
MAX_STRING: Final = 16 << 20
MAX_NAME: Final = 1 << 16
MAX_DIMENSIONS: Final = 4
MAX_ALIGNMENT: Final = 1 << 16
KEPT_NUMBERS: Final = 4096
MAX_SIZE: Final = 1 << 31
_CHUNK: Final = 1 << 20

Scalar = int | float | bool | str


@dataclass(frozen=True, slots=True)
class Array:
    """An array: its length, its first numbers if it is numeric, and the SHA-256 of its bytes."""

    length: int
    numbers: tuple[int | float, ...]
    digest: str


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor. `offset` is in bytes from the start of the data section."""

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    bytes: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class RawHeader:
    """Everything in front of the data section of one file."""

    entries: Mapping[str, Scalar | Array]
    tensors: tuple[Tensor, ...]
    file_bytes: int


def read_raw(path: Path) -> RawHeader:
    """Read the header of one file, and check that its tensors fill the rest of it. Raises GgufError."""
    try:
        with closing(_Bytes(path)) as source:
            return _read(source)
    except OSError as error:
        raise GgufError(path, f"cannot be read: {error.strerror}") from error


def _read(source: "_Bytes") -> RawHeader:
    magic = source.take(min(4, source.size), "the magic bytes")
    if not magic:
        raise source.error("is empty")
    if magic != MAGIC:
        raise source.error(f"is not a GGUF file: it begins with {magic!r}, not {MAGIC!r}")
    version = source.integer(4, "the version")
    if version not in VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        why = "is big-endian" if swapped in VERSIONS else f"has GGUF version {version}"
        raise source.error(f"{why}; little-endian versions 2 and 3 can be read")
    n_tensors = source.count("tensors", MAX_TENSORS, 24)
    n_entries = source.count("key-values", MAX_ENTRIES, 13)
    entries: dict[str, Scalar | Array] = {}
    for _ in range(n_entries):
        key = source.string("a key", MAX_NAME)
        if key in entries:
            raise source.error(f"has the key {key!r} twice")
        entries[key] = _value(source, key)
    tensors = tuple(_tensor(source) for _ in range(n_tensors))
    _check_layout(source, entries.get("general.alignment", 32), tensors)
    return RawHeader(entries, tensors, source.size)


def _value(source: "_Bytes", key: str) -> Scalar | Array:
    kind = source.integer(4, f"the type of {key}")
    if kind == STRING:
        return source.string(key, MAX_STRING)
    if kind == ARRAY:
        return _array(source, key)
    return source.scalar(kind, key)


def _array(source: "_Bytes", key: str) -> Array:
    kind = source.integer(4, f"the item type of {key}")
    if kind == STRING:
        length = source.count(f"strings in {key}", source.size, 8)
        return Array(length, (), source.skip_strings(length, key))
    if kind not in SCALARS:
        raise source.error(f"{key} is an array of type {kind}, which does not exist or cannot be nested")
    code, width = SCALARS[kind]
    length = source.count(f"items in {key}", source.size, width)
    numbers = min(length, KEPT_NUMBERS)
    head = source.take(numbers * width, key)
    digest = source.skip((length - numbers) * width, key, hashlib.sha256(head))
    return Array(length, struct.unpack(f"<{numbers}{code}", head), digest)


def _tensor(source: "_Bytes") -> Tensor:
    name = source.string("a tensor's name", MAX_NAME)
    n_dimensions = source.integer(4, f"the dimensions of {name}")
    if not 0 < n_dimensions <= MAX_DIMENSIONS:
        raise source.error(f"tensor {name} has {n_dimensions} dimensions; accepted: 1 to {MAX_DIMENSIONS}")
    shape = tuple(source.integer(8, f"the shape of {name}") for _ in range(n_dimensions))
    kind = source.integer(4, f"the type of {name}")
    offset = source.integer(8, f"the offset of {name}")
    if kind not in TENSOR_TYPES:
        raise source.error(f"tensor {name} has the unknown type {kind}")
    type_name, block, block_bytes = TENSOR_TYPES[kind]
    if 0 in shape or shape[0] % block:
        raise source.error(f"tensor {name} of shape {list(shape)} does not fit type {type_name} (blocks of {block})")
    return Tensor(name, shape, type_name, offset, math.prod(shape) // block * block_bytes)


def _check_layout(source: "_Bytes", alignment: Scalar | Array, tensors: tuple[Tensor, ...]) -> None:
    if not isinstance(alignment, int) or not 0 < alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise source.error(f"general.alignment is {alignment!r}; accepted: a power of two up to {MAX_ALIGNMENT}")
    start = -(-source.position // alignment) * alignment
    expected = 0
    for tensor in tensors:
        if tensor.offset != expected:
            raise source.error(f"tensor {tensor.name} lies at {tensor.offset:,}, and should at {expected:,}: corrupt")
        expected += -(-tensor.bytes // alignment) * alignment
        end = start + tensor.offset + tensor.bytes
        if end > source.size:
            missing = end - source.size
            raise source.error(f"is truncated: tensor {tensor.name} ends {missing:,} bytes after the end of the file")


class _Bytes:
    def __init__(self, path: Path) -> None:
        self.path = path
        # O_NONBLOCK: opening a FIFO would otherwise wait for a writer
        # Unbuffered: `_need` reads large pieces.
        self._file: BinaryIO = open(path, "rb", buffering=0, opener=_open_nonblocking)
        try:
            status = os.fstat(self._file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise self.error("is not a regular file")
        except BaseException:
            self._file.close()
            raise
        self.size = status.st_size
        self._buffer = b""
        self._at = 0
        self._before = 0

    def close(self) -> None:
        self._file.close()

    @property
    def position(self) -> int:
        return self._before + self._at

    def error(self, reason: str) -> GgufError:
        return GgufError(self.path, reason)

    def take(self, size: int, subject: str) -> bytes:
        self._need(size, subject)
        piece = self._buffer[self._at : self._at + size]
        self._at += size
        return piece

    def integer(self, width: int, subject: str) -> int:
        return int.from_bytes(self.take(width, subject), "little")

    def count(self, subject: str, most: int, least_bytes: int) -> int:
        number = self.integer(8, f"the number of {subject}")
        remaining = self.size - self.position  # a corrupt count must not cost memory
        if number > most or number * least_bytes > remaining:
            raise self.error(
                f"says that it has {number:,} {subject}, with {remaining:,} bytes left: corrupt or truncated"
            )
        return number

    def string(self, subject: str, most: int) -> str:
        length = self.integer(8, f"the length of {subject}")
        if length > most:
            raise self.error(f"{subject} is {length:,} bytes long; accepted: up to {most:,}")
        try:
            return self.take(length, subject).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.error(f"{subject} is not UTF-8") from error

    def scalar(self, kind: int, subject: str) -> Scalar:
        if kind not in SCALARS:
            raise self.error(f"{subject} has the unknown type {kind}")
        code, width = SCALARS[kind]
        value: int | float | bool = struct.unpack(f"<{code}", self.take(width, subject))[0]
        return value

    def skip(self, size: int, subject: str, digest: "hashlib._Hash") -> str:
        while size:
            piece = self.take(min(size, _CHUNK), subject)
            digest.update(piece)
            size -= len(piece)
        return digest.hexdigest()

    def skip_strings(self, count: int, subject: str) -> str:
        # The digest includes the lengths.
        digest = hashlib.sha256()
        length_at = struct.Struct("<Q").unpack_from
        while count:
            self._need(8, subject)
            buffer, at, end = self._buffer, self._at, len(self._buffer) - 8
            start = at
            while count and at <= end:  # hot loop, hundreds of thousands of rounds: no other calls
                following = at + 8 + length_at(buffer, at)[0]
                if following > end + 8:
                    break
                at = following
                count -= 1
            digest.update(buffer[start:at])
            self._at = at
            if count and at == start:
                self._long_string(subject, digest)
                count -= 1
        return digest.hexdigest()

    def _long_string(self, subject: str, digest: "hashlib._Hash") -> None:
        head = self.take(8, subject)
        length = int.from_bytes(head, "little")
        if length > MAX_STRING:
            raise self.error(f"{subject} has a string of {length:,} bytes; accepted: up to {MAX_STRING:,}")
        digest.update(head + self.take(length, subject))

    def _need(self, size: int, subject: str) -> None:
        missing = size - (len(self._buffer) - self._at)
        if missing <= 0:
            return
        if self.position + size > self.size:
            raise self.error(f"is truncated: it ends at byte {self.size:,}, in {subject}")
        self._before += self._at
        pieces = [self._buffer[self._at :]]
        self._at = 0
        while missing > 0:
            piece = self._file.read(max(missing, _CHUNK))
            if not piece:
                raise self.error(f"was cut short while it was read, in {subject}")
            pieces.append(piece)
            missing -= len(piece)
        self._buffer = b"".join(pieces)


def _open_nonblocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


class Fields:
    """The metadata of one file. Every method raises GgufError for a value of another type or out of bounds.

    Most keys belong to the architecture, and are given without its name: `block_count` for `llama.block_count`.
    """

    def __init__(self, path: Path, raw: RawHeader) -> None:
        self._path = path
        self._entries = raw.entries  # values of any type
        self.architecture = self.text("general.architecture")

    def text(self, key: str, default: str | None = None) -> str:
        """Return the text of a full key."""
        value = self._entries.get(key, default)
        if isinstance(value, str):
            return value
        raise self.error(f"{key} is missing" if value is None else f"{key} is not a text")

    def named(self, key: str, names: Mapping[int, str]) -> str | None:
        """Return the name of the number of a full key, or None."""
        value = self._entries.get(key)
        return names.get(value) if isinstance(value, int) else None

    def size(self, key: str, default: int | None = None, most: int = MAX_SIZE) -> int:
        """Return a whole number of the architecture."""
        full = f"{self.architecture}.{key}"
        value = self._entries.get(full, default)
        if value is None:
            raise self.error(f"{full} is missing")
        return self._checked(full, value, most)

    def per_layer(self, key: str, layers: int, default: tuple[int, ...]) -> tuple[int, ...]:
        """Return a whole number of the architecture for each layer; the file may state one for all of them."""
        full = f"{self.architecture}.{key}"
        if full not in self._entries:
            return default
        value = self._entries[full]
        if not isinstance(value, Array):
            return (self._checked(full, value, MAX_SIZE),) * layers
        if len(value.numbers) != layers:
            raise self.error(f"{full} has {value.length} items, but the model has {layers} layers")
        return tuple(self._checked(full, number, MAX_SIZE) for number in value.numbers)

    def list_of(self, key: str, least: int) -> tuple[int | float, ...] | None:
        """Return the numbers of an array of the architecture that has `least` items or more, else None."""
        value = self._entries.get(f"{self.architecture}.{key}")
        return value.numbers if isinstance(value, Array) and len(value.numbers) >= least else None

    def vocabulary(self) -> Array:
        """Return the tokens."""
        tokens = self._entries.get("tokenizer.ggml.tokens")
        if not isinstance(tokens, Array) or not tokens.length:
            raise self.error("holds no vocabulary (tokenizer.ggml.tokens)")
        return tokens

    def error(self, reason: str) -> GgufError:
        return GgufError(self._path, reason)

    def _checked(self, full: str, value: Scalar | Array, most: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            shown = f"an array of {value.length}" if isinstance(value, Array) else repr(value)[:80]
            raise self.error(f"{full} is {shown}; accepted: a whole number up to {most:,}")
        return value
