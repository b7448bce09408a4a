"""Construct models whose greedy text is known: each word is followed by one certain word, whatever came before.

The words form one cycle. A row of the output matrix is the embedding of the word before, so that its logit stands far
above all others; the layers in between compute all that such layers do and change the residual stream only a little.
Rows of tokens that are no words are zero: they are never the likeliest, so no text ends early.

A drafter shares embedding, first layers and cycle with its target, but for a share of words after which it expects
another one: where the text goes through the cycle, it is right at the rest. A target has further layers, whose output
projections are zero: they cost their time and add nothing, so that the pair agrees by construction.
"""

from zlib import crc32

import numpy as np
import numpy.typing as npt

from benchmarks.engine.words import COUNT, FIRST
from benchmarks.models import Draw, Matrix

Next = npt.NDArray[np.int32]
"""For each word, counted from 0, the word that follows."""

PROJECTIONS = ("attn_output", "ffn_down")
"""The matrices through which a layer adds to the residual stream."""
_ADDED = 0.1
_OUTPUT = 0.5


def cycle(seed: int, count: int = COUNT) -> Next:
    """Return what follows each word: one cycle through all of them."""
    order = np.random.default_rng(seed).permutation(count)
    following = np.empty(count, np.int32)
    following[order] = np.roll(order, -1)
    return following


def mistaken(following: Next, share: float, seed: int) -> Next:
    """Return a copy in which that share of words (if any, at least two) is followed by a wrong one."""
    count = round(len(following) * share)
    if count < 2:
        return following.copy()
    wrong = np.random.default_rng(seed).choice(len(following), count, replace=False)
    changed = following.copy()
    changed[wrong] = following[np.roll(wrong, 1)]
    return changed


def walk(following: Next, start: int, count: int) -> tuple[int, ...]:
    """Return the next `count` tokens after the token `start`, which is a word."""
    found = []
    word = start - FIRST
    for _ in range(count):
        word = int(following[word])
        found.append(word + FIRST)
    return tuple(found)


def weights(following: Next, seed: int, active_layers: int) -> Draw:
    """Return the weights of a model that follows the cycle; its layers from `active_layers` on add nothing."""

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
        _, layer, part, _ = name.split(".")
        if part not in PROJECTIONS:
            return normal(name, rows, columns) * scale
        if int(layer) >= active_layers:
            return np.zeros((rows, columns), np.float32)
        return normal(name, rows, columns) * (_ADDED * scale)

    return draw
