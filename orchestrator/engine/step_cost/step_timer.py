"""Time single steps of a loaded model, each behind what its sequences hold, and take the steps back."""

from collections.abc import Generator
from math import inf

import numpy as np

from orchestrator.engine.llama import Llama
from orchestrator.engine.worker.contention import CpuUse

ROUNDS = 3
"""How often everything is measured."""
STEP_SECONDS = 0.5
"""No step that should take longer is measured, because a request that arrives meanwhile waits for it."""
FIRST_PAUSE = 0.5
"""How many seconds measuring waits after it was disturbed by other processes, for the first time in a row."""

MeasuringSteps = Generator[float, None, None]
"""Measures one step each time it is resumed, and yields after how many seconds the next one may follow."""


class StepTimer:
    """Times steps of a model.

    The tokens that a step adds to the cache are taken back at once, or by `take_back` when they were kept.
    """

    def __init__(self, llama: Llama, seconds: float = inf) -> None:
        """Prepare to measure steps that take at most `seconds` together, as far as `has_time` is asked."""
        self._llama = llama
        self._left = seconds
        self._token_seconds = llama.warm_seconds
        self._use = CpuUse()
        self._kept: dict[int, int] = {}

    @property
    def disturbed(self) -> bool:
        """Whether other processes had the cores during the last step."""
        return self._use.disturbed(self._llama.threads)

    def has_time(self, tokens: int) -> bool:
        """Return whether a step of so many tokens should fit into the time that is left, and into `STEP_SECONDS`."""
        return self._token_seconds * tokens < min(self._left, STEP_SECONDS)

    def time_step(self, shares: list[tuple[int, int]], *, outputs: bool = True, keep: bool = False) -> float:
        """Return the seconds that one step takes.

        `shares` are pairs of a sequence and the number of tokens that it gets. With `outputs`, logits are computed for
        all of them. With `keep`, the tokens stay in the cache until `take_back`.
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
            self._kept = before | self._kept
        else:
            for seq, length in before.items():
                llama.truncate(seq, length)
        return seconds

    def take_back(self) -> bool:
        """Remove the tokens that were kept from the cache, and return whether there were any."""
        kept, self._kept = self._kept, {}
        for seq, length in kept.items():
            self._llama.truncate(seq, length)
        return bool(kept)
