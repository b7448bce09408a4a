"""Pack training examples into rows of token ids with loss weights. A batch depends only on its step."""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from random import Random
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from benchmarks.tiny import corpus
from benchmarks.tiny.sizes import CONTEXT, ROW, SIZES, TOKENIZER_FILE, Mix, Size
from benchmarks.tiny.tokenizer import SPECIAL_TOKENS, VOCABULARY_SIZE, Tokenizer
from orchestrator.bench.families.example import Example
from orchestrator.bench.families.words import seeded

LONG_EVERY = 12
LONG_SHARE = 0.8
PROMPT_WEIGHT = 0.1
MISSES = 16
LEAST_URGENT = 19
# Copying is learned first, from random tokens repeated: (until this step, share of rows).
COPYING = ((400, 0.6), (800, 0.1))


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """`ids` [rows, length + 1]; `weights` [rows, length] of the loss of predicting ids[:, 1:]."""

    ids: NDArray[np.int64]
    weights: NDArray[np.float32]


def batches_from(size: Size, first: int) -> Generator[TrainingBatch, None, None]:
    """Yield the batches of the steps from `first` on. Another process prepares each while the one before is used."""
    command = [sys.executable, "-m", __name__, size.name, str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as maker:  # noqa: S603 - our own module
        assert maker.stdout
        for _ in range(first, size.steps):
            yield TrainingBatch(*pickle.load(maker.stdout))  # noqa: S301 - from our own process


def make(size: Size, first: int, out: BinaryIO) -> None:
    """Write the batches of the steps from `first` on to `out`, a pipe that buffers one batch."""
    tokenizer = Tokenizer.load(TOKENIZER_FILE)
    for step in range(first, size.steps):
        batch = training_batch(tokenizer, size, step)
        pickle.dump((batch.ids, batch.weights), out)


def empty(shape: tuple[int, int]) -> TrainingBatch:
    """Return a batch of padding only, with loss weights of 0."""
    rows, length = shape
    return TrainingBatch(np.zeros((rows, length + 1), np.int64), np.zeros((rows, length), np.float32))


def training_batch(tokenizer: Tokenizer, size: Size, step: int) -> TrainingBatch:
    """Return the batch of `step`. Every twelfth batch has rows as long as the context."""
    rng = seeded(f"train/{step}")
    long = step % LONG_EVERY == LONG_EVERY - 1
    cycle, _ = size.cycle_at(step)
    length = CONTEXT if long else cycle.length
    batch = empty((round(size.rows * ROW / length), length))
    share = next((share for until, share in COPYING if step < until), 0.0)
    rows = len(batch.ids)
    copying = round(share * rows) if not long else 0
    for row in range(copying):
        _fill_with_copies(batch, row, rng)
    pack(batch, copying, lambda: corpus.encode(tokenizer, _drawn(rng, long, cycle.mix)))
    return batch


def _fill_with_copies(batch: TrainingBatch, row: int, rng: Random) -> None:
    length = batch.ids.shape[1]
    period = rng.randint(3, 24)
    pattern = [rng.randrange(len(SPECIAL_TOKENS), VOCABULARY_SIZE) for _ in range(period)]
    batch.ids[row] = np.resize(pattern, length)
    batch.weights[row, period:] = 1.0


def _drawn(rng: Random, long: bool, mix: Mix) -> Example:
    draw = corpus.draw_long if long and rng.random() < LONG_SHARE else corpus.draw
    return draw(rng, "train", mix)


def pack(batch: TrainingBatch, first: int, draw: Callable[[], tuple[list[int], int]]) -> None:
    """Fill the rows from `first` on with new examples, until several in a row do not fit anywhere.

    `draw` returns the token ids of an example and how many of them are the prompt.
    """
    rows, length = batch.ids.shape
    used = [0] * rows
    misses = 0
    while misses < MISSES:
        ids, prompt = draw()
        row = next((r for r in range(first, rows) if used[r] + len(ids) <= length), None)
        if row is None:
            misses += 1
            continue
        place(batch, row, used[row], ids, prompt)
        used[row] += len(ids)


def place(batch: TrainingBatch, row: int, start: int, ids: list[int], prompt: int) -> None:
    """Write an example into `row` at `start`. There is no loss for its first token."""
    end = start + len(ids)
    batch.ids[row, start:end] = ids
    # Position i of the weights is for the prediction of token i + 1.
    batch.weights[row, start : start + prompt - 1] = PROMPT_WEIGHT
    batch.weights[row, start + prompt - 1 : end - 1] = 1.0


if __name__ == "__main__":
    os.nice(LEAST_URGENT)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # it ends silently when its reader ends
    make(SIZES[sys.argv[1]], int(sys.argv[2]), sys.stdout.buffer)
