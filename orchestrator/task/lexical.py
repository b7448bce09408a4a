"""Embed texts without a model, by hashed n-grams of their bytes: words match if they share a stem or a part.

The vectors reflect spelling, not meaning. A vector is the signed square root of the text's n-gram counts, divided by
the root of their sum, so its length is 1. Only operations with exactly one IEEE 754 result are used: the same text has
the same vector, bit for bit, on every machine.
"""

import unicodedata
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

NAME: Final = "lexical"  # stored with the vectors; has to change whenever `embed` returns something else

DIMENSIONS: Final = 1024
# For learned routing, which compares vectors in each decision; `make bench-routing` measures both.
LEARNING_DIMENSIONS: Final = 384
SIZES: Final = (3, 4, 5)  # lengths of n-grams, in bytes

BLOCK: Final = 1 << 16  # n-grams hashed at a time, which bounds the memory for a long text

_PRIME: Final = np.uint64(1099511628211)
_BASIS: Final = np.uint64(14695981039346656037)
_MIXER: Final = np.uint64(0xFF51AFD7ED558CCD)
_HALF: Final = np.uint64(33)
_UPPER: Final = np.uint64(32)
_SIGN: Final = np.uint64(1 << 63)  # hashes from here on count as positive

Vectors = NDArray[np.float32]


def embed(texts: Sequence[str], dimensions: int = DIMENSIONS) -> Vectors:
    """Return a vector of length 1 (0 for a text without an n-gram) for each text: shape (texts, dimensions)."""
    vectors = np.zeros((len(texts), dimensions), dtype=np.float32)
    for row, text in zip(vectors, texts, strict=True):
        counts = _counts(_plain(text), dimensions)
        much = np.abs(counts)
        row[:] = np.sign(counts) * np.sqrt(much / max(much.sum(), 1))
    return vectors


def _plain(text: str) -> bytes:
    folded = text.casefold()
    if not folded.isascii():
        parts = unicodedata.normalize("NFKD", folded)
        folded = "".join(letter for letter in parts if not unicodedata.combining(letter))
    words = " ".join(folded.split())
    return f" {words} ".encode(errors="surrogatepass") if words else b""


def _counts(data: bytes, dimensions: int) -> NDArray[np.float64]:
    # Each hash also has a sign, so that collisions do not add up.
    total = np.zeros(dimensions)
    for start in range(0, len(data) - SIZES[0] + 1, BLOCK):
        hashed = _hashes(data[start : start + BLOCK + SIZES[-1] - 1])
        sign = 1.0 - 2.0 * (hashed < _SIGN)
        place = ((hashed >> _UPPER) % np.uint64(dimensions)).astype(np.intp)
        total += np.bincount(place, weights=sign, minlength=dimensions)
    return total


def _hashes(data: bytes) -> NDArray[np.uint64]:
    # FNV-1a hardly reaches the upper bits in so few bytes, so the mixing step of MurmurHash3 follows. A longer n-gram
    # continues the hash of the shorter one at the same byte.
    codes = np.frombuffer(data, dtype=np.uint8).astype(np.uint64)
    hashed = np.full(min(BLOCK, len(codes)), _BASIS)
    every = []
    for offset in range(SIZES[-1]):
        hashed = (hashed[: len(codes) - offset] ^ codes[offset : offset + len(hashed)]) * _PRIME
        if offset + 1 in SIZES:
            every.append(hashed)
    whole = np.concatenate(every)
    mixed = (whole ^ (whole >> _HALF)) * _MIXER
    return mixed ^ (mixed >> _HALF)
