"""Construct models whose greedy text is known: each word is always followed by the same word.

The words form one cycle. Each row of the output matrix is the embedding of the word before in the cycle, so the logit
of the next word is far above all others. The layers in between do the work of such layers and change the residual
stream only a little. The rows of tokens that are no words are zero, so these are never the most likely, and no text
ends early.

A draft model shares the embedding, the first layers and the cycle with its target, except for a share of the words,
after which it expects a wrong one. A target has further layers whose output projections are zero: they take their time
and add nothing, so that the two models agree by construction.
"""

from zlib import crc32

import numpy as np
import numpy.typing as npt

from benchmarks.engine.words import COUNT, FIRST
from benchmarks.models import Draw, Matrix

Next = npt.NDArray[np.int32]  # for each word, counted from 0, the word that follows

# The matrices through which a layer adds to the residual stream.
PROJECTIONS = ("attn_output", "ffn_down", "shortconv.out_proj")
_ADDED = 0.1
_OUTPUT = 0.5


def cycle(seed: int, count: int = COUNT) -> Next:
    """Return the word that follows each word, in one random cycle through all of them."""
    order = np.random.default_rng(seed).permutation(count)
    following = np.empty(count, np.int32)
    following[order] = np.roll(order, -1)
    return following


def mistaken(following: Next, share: float, seed: int) -> Next:
    """Return a copy in which a share of the words is followed by a wrong one; unchanged if that is less than two."""
    count = round(len(following) * share)
    if count < 2:
        return following.copy()
    wrong = np.random.default_rng(seed).choice(len(following), count, replace=False)
    changed = following.copy()
    changed[wrong] = following[np.roll(wrong, 1)]
    return changed


def walk(following: Next, start: int, count: int) -> tuple[int, ...]:
    """Return the next `count` tokens after the token `start`, which is a word."""
    words = []
    word = start - FIRST
    for _ in range(count):
        word = int(following[word])
        words.append(word + FIRST)
    return tuple(words)


def weights(following: Next, seed: int, active_layers: int) -> Draw:
    """Return the weights of a model whose text is `following`; its layers from `active_layers` on add nothing."""

    def normal(name: str, rows: int, columns: int) -> Matrix:
        rng = np.random.default_rng((seed, crc32(name.encode())))
        return rng.standard_normal((rows, columns), dtype=np.float32)

    def draw(name: str, rows: int, columns: int) -> Matrix:
        scale = np.float32(columns**-0.5)
        if name == "token_embd.weight":
            return normal(name, rows, columns)
        if name == "output.weight":
            embedding = normal("token_embd.weight", rows, columns)
            output = np.zeros((rows, columns), np.float32)
            output[FIRST + following] = embedding[FIRST : FIRST + len(following)] * (_OUTPUT * scale)
            return output
        _, layer, *parts, _ = name.split(".")
        part = ".".join(parts)
        if part not in PROJECTIONS:
            return normal(name, rows, columns) * scale
        if int(layer) >= active_layers:
            return np.zeros((rows, columns), np.float32)
        return normal(name, rows, columns) * (_ADDED * scale)

    return draw
