"""Train the tool caller: from the weights of the embedded medium model on, with a few more tokens."""

import time
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.tiny.batches import TrainingBatch, empty, pack
from benchmarks.tiny.sizes import Size
from benchmarks.tiny.tokenizer import END, SPECIAL_TOKENS
from benchmarks.tiny.train import REPORT_EVERY, SAVE_SECONDS, Training, record_cost
from benchmarks.tool_caller.data import written
from benchmarks.tool_caller.recipe import SIZE, START
from orchestrator.bench.families.words import SPLITS, Split, seeded
from orchestrator.memrl.parl.network import LlamaNetwork, read_weights

LENGTH: Final = 640  # the tokens of a row
# The loss weight of prompts, as a share of what it is for the embedded models: they are long and much alike.
PROMPTS: Final = 0.2
ASSISTANT: Final = SPECIAL_TOKENS.index("<|assistant|>")
PROBE_EVERY: Final = 200
PROBED_EXAMPLES: Final = 48


def batch(size: Size, step: int) -> TrainingBatch:
    """Return the batch of a step."""
    rng, made = seeded(f"tool caller/{step}"), empty((size.rows, LENGTH))
    pack(made, 0, lambda: written(rng, "train").ids)
    made.weights[made.weights < 1] *= PROMPTS
    for ids, weights in zip(made.ids, made.weights, strict=True):
        _learn_earlier_answers(ids, weights)
    return made


def _learn_earlier_answers(ids: NDArray[np.int64], weights: NDArray[np.float32]) -> None:
    """Give answers that are in the prompts the full weight, but for their first token, where a thought may stand."""
    start = None
    for place, token in enumerate(ids):
        if token == ASSISTANT:
            start = place
        elif token == END and start is not None:
            if weights[place - 1] < 1:
                weights[start + 1 : place] = 1.0
            start = None


def probe(model: LlamaNetwork, split: Split) -> float:
    """Return the share of exact answers, where each token is the likeliest one after the right beginning.

    That is what greedy decoding gives.
    """
    rng = seeded(f"tool caller/probe/{split}")
    encoded = [written(rng, split).ids for _ in range(PROBED_EXAMPLES)]
    ids = torch.zeros(len(encoded), max(len(tokens) for tokens, _ in encoded), dtype=torch.long)
    for row, (tokens, _) in enumerate(encoded):
        ids[row, : len(tokens)] = torch.tensor(tokens)
    with torch.no_grad():
        right = model(ids[:, :-1]).argmax(-1) == ids[:, 1:]
    exact = [bool(right[row, start - 1 : len(tokens) - 1].all()) for row, (tokens, start) in enumerate(encoded)]
    return sum(exact) / len(exact)


def train(size: Size) -> None:
    """Train to the last step, saving a checkpoint every few minutes, then record the cost."""
    training = Training(size, compiled=False)
    read_weights(training.model, START.shipped)
    training.resume(size.checkpoint)
    progress, saved = training.progress, time.monotonic()
    while progress.step < size.steps:
        tokens, seconds = progress.tokens, progress.seconds
        loss = training.step(batch(size, progress.step))
        if progress.step % REPORT_EVERY == 0:
            rate = (progress.tokens - tokens) / (progress.seconds - seconds)
            print(f"step {progress.step} loss {loss:.3f} {rate:.0f} tokens/s", flush=True)
        if progress.step % PROBE_EVERY == 0:
            print(f"  exact: {[probe(training.model, split) for split in SPLITS[1:]]}", flush=True)
        if time.monotonic() - saved > SAVE_SECONDS:
            training.save(size.checkpoint)
            saved = time.monotonic()
    training.save(size.checkpoint)
    record_cost(training)


if __name__ == "__main__":
    torch.set_flush_denormal(True)
    train(SIZE)
