"""Time single steps of a loaded model, and remove their tokens again."""

from collections.abc import Generator
from math import inf

import numpy as np

from orchestrator.engine.llama import Llama
from orchestrator.engine.worker.contention import CpuUse

ROUNDS = 3  # repetitions of each measurement
STEP_SECONDS = 0.5  # Longer steps are not measured, because an arriving request waits for the current one.
FIRST_PAUSE = 0.5  # seconds after the first disturbance by other processes in a row

MeasuringSteps = Generator[float, None, None]  # Resume to measure one step; yields the seconds until the next one.


class StepTimer:
    """Times steps of a model, and removes their tokens at once or in `take_back`."""

    def __init__(self, llama: Llama, seconds: float = inf) -> None:
        """`seconds` is the total time for `has_time`."""
        self._llama = llama
        self._left = seconds
        self._token_seconds = llama.warm_seconds
        self._use = CpuUse()
        self._lengths_before: dict[int, int] = {}

    @property
    def disturbed(self) -> bool:
        """Whether other processes used the cores during the last step."""
        return self._use.disturbed(self._llama.threads)

    def has_time(self, tokens: int) -> bool:
        """Return whether such a step should fit into the remaining time and `STEP_SECONDS`."""
        return self._token_seconds * tokens < min(self._left, STEP_SECONDS)

    def time_step(self, shares: list[tuple[int, int]], *, outputs: bool = True, keep: bool = False) -> float:
        """Return the seconds of one step.

        `shares` are pairs of a sequence and its tokens. `outputs` computes logits for all. With `keep`, the tokens stay
        until `take_back`.
        """
        llama, batch = self._llama, self._llama.batch
        before = {seq: llama.held(seq) for seq, _ in shares}
        batch.clear()
        for seq, count in shares:
            tokens = np.arange(1, count + 1, dtype=np.int32) % llama.vocab.size
            batch.add(seq, llama.held(seq), tokens, count if outputs else 0)
        self._use.start()
        llama.decode()
        seconds = self._use.stop()
        size = sum(count for _, count in shares)
        self._left -= seconds
        self._token_seconds = min(self._token_seconds, seconds / size)
        if keep:
            self._lengths_before = before | self._lengths_before
        else:
            for seq, length in before.items():
                llama.truncate(seq, length)
        return seconds

    def take_back(self) -> bool:
        """Remove the kept tokens, and return whether there were any."""
        lengths, self._lengths_before = self._lengths_before, {}
        for seq, length in lengths.items():
            self._llama.truncate(seq, length)
        return bool(lengths)
