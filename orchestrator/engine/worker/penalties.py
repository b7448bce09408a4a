"""Make tokens less likely that would repeat what a sequence has generated already."""

from typing import Final

import numpy as np
import numpy.typing as npt

from orchestrator.engine.llama import Logits
from orchestrator.registry.options import SamplingOptions

# The most that DRY subtracts from a logit. Minus infinity would mean that a grammar forbids the token.
_MOST: Final = 1e6


class Penalties:
    """The penalties of one sequence. They depend only on its tokens, so drafts do not change the text.

    `breakers`, of shape (vocabulary,), says which tokens contain one of the `dry_sequence_breakers`.
    """

    def __init__(self, options: SamplingOptions, breakers: npt.NDArray[np.bool_]) -> None:
        self._options = options
        self._breakers = breakers
        self._count = 0
        self._tokens = np.zeros(256, np.int32)
        # For each token but the last: how many tokens that end with it equal as many at the end of the text.
        self._matched = np.zeros(256, np.int32)

    def append(self, token: int) -> None:
        """Record a generated token, in time proportional to the tokens so far."""
        count = self._count
        if count == len(self._tokens):
            self._tokens, self._matched = (np.resize(array, 2 * count) for array in (self._tokens, self._matched))
        if self._options.dry_multiplier and count:
            self._match(token, count)
        self._tokens[count] = token
        self._count += 1

    def _match(self, token: int, count: int) -> None:
        matched, tokens = self._matched, self._tokens
        if self._breakers[token]:
            matched[:count] = 0
            return
        again = tokens[:count] == token
        matched[1:count] = np.where(again[1:], matched[: count - 1] + 1, 0)
        matched[0] = again[0]

    def apply(self, logits: Logits) -> Logits:
        """Return a copy of the logits, of shape (vocabulary,), in which repetitions are less likely."""
        changed = logits.copy()
        if self._options.penalises_tokens:
            self._penalise_tokens(changed)
        if self._options.dry_multiplier:
            self._penalise_repetitions(changed)
        return changed

    def _penalise_tokens(self, logits: Logits) -> None:
        options = self._options
        ids, counts = np.unique(self._last(options.repeat_last_n), return_counts=True)
        old = logits[ids]
        # `repeat_penalty` is that of Keskar et al. 2019 (CTRL), section 4.1, except that logits below 0 are
        # multiplied by it, so that they become smaller too. The others are those of OpenAI's API. The order is
        # llama.cpp's.
        new = np.where(old <= 0, old * options.repeat_penalty, old / options.repeat_penalty)
        logits[ids] = new - counts * options.frequency_penalty - options.presence_penalty

    def _penalise_repetitions(self, logits: Logits) -> None:
        # DRY: https://github.com/oobabooga/text-generation-webui/pull/5677
        options, count = self._options, self._count
        begin = 0 if options.dry_penalty_last_n is None else max(0, count - options.dry_penalty_last_n)
        lengths = self._matched[begin : max(begin, count - 1)]
        if options.dry_penalty_last_n is not None:  # a repetition must lie within the last tokens as a whole
            lengths = np.minimum(lengths, np.arange(1, len(lengths) + 1, dtype=np.int32))
        long = np.flatnonzero(lengths >= options.dry_allowed_length)
        if not len(long):
            return
        long = long[np.argsort(lengths[long], kind="stable")]
        following = self._tokens[begin + long + 1].tolist()
        longest = dict(zip(following, lengths[long].tolist(), strict=True))  # the longest of each token comes last
        for token, length in longest.items():
            if not self._breakers[token]:
                logits[token] -= self._penalty(length)

    def _penalty(self, length: int) -> float:
        options = self._options
        exponent = min(float(length - options.dry_allowed_length), np.log(_MOST) / max(np.log(options.dry_base), 1e-9))
        return float(min(options.dry_multiplier * options.dry_base**exponent, _MOST))

    def _last(self, count: int | None) -> npt.NDArray[np.int32]:
        return self._tokens[0 if count is None else max(0, self._count - count) : self._count]
