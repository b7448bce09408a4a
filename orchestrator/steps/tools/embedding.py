"""Embed texts without a model: hashed character n-grams, so that words match which only share a stem or a part."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

DIMENSIONS = 2048
SIZES = (3, 4, 5)
"""Bytes of an n-gram."""

_PRIME = np.uint64(1099511628211)
_BASIS = np.uint64(14695981039346656037)

Vectors = NDArray[np.float32]


def embed(texts: Sequence[str]) -> Vectors:
    """Return one vector of length 1 (of 0, for a text without an n-gram) for each text: shape (texts, DIMENSIONS)."""
    vectors = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
    for row, text in zip(vectors, texts, strict=True):
        row += _counts(text)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors /= np.where(norms > 0, norms, 1)
    return vectors


def _counts(text: str) -> Vectors:
    """Count n-grams, dampened; the sign that a hash gives each keeps collisions from adding up."""
    spaced = f" {' '.join(text.casefold().split())} ".encode()
    data = np.frombuffer(spaced, dtype=np.uint8).astype(np.uint64)
    total = np.zeros(DIMENSIONS, dtype=np.float32)
    for size in SIZES:
        hashed = _hashes(data, size)
        sign = np.where(hashed >> np.uint64(63), 1.0, -1.0)
        total += np.bincount((hashed >> np.uint64(32)) % DIMENSIONS, weights=sign, minlength=DIMENSIONS)
    return np.sign(total) * np.log1p(np.abs(total))


def _hashes(data: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    """Return the FNV-1a hash of every window of `size` bytes; arithmetic is modulo 2^64."""
    count = max(0, len(data) - size + 1)
    hashed = np.full(count, _BASIS)
    for offset in range(size):
        hashed = (hashed ^ data[offset : offset + count]) * _PRIME
    return hashed
