"""Draft tokens by prompt lookup: propose what followed where the last tokens of the sequence occurred before."""

import numpy as np

from orchestrator.engine.kv.prefix_tree import Tokens

WINDOW = 8192
"""How many n-grams of each length are remembered, which takes about 1.5 MB per length."""

MIN_N_GRAM = 2
"""The shortest n-gram that is compared: a single token says too little about the next one."""


class PromptLookup:
    """The n-grams of one sequence, prompt and output.

    `longest` is the longest n-gram that is compared. Of each length, the `window` n-grams that occurred last are
    remembered. Only n-grams that were followed by something are kept, so the end of the sequence never finds itself.
    """

    def __init__(self, prompt: Tokens, longest: int, window: int = WINDOW) -> None:
        self._window = window
        self._tokens: list[int] = prompt.tolist()
        lengths = range(longest, min(MIN_N_GRAM, longest) - 1, -1)
        self._followed = {length: self._n_grams(length) for length in lengths}

    def _n_grams(self, length: int) -> dict[tuple[int, ...], int]:
        """Return where the last occurrence of each n-gram of the prompt ends; built in C, because prompts are long."""
        end = len(self._tokens)
        first = max(0, end - length - self._window)
        columns = (self._tokens[first + offset : end] for offset in range(length))
        return dict(zip(zip(*columns, strict=False), range(first + length, end), strict=False))

    def append(self, token: int) -> None:
        """Add the next token of the output."""
        end = len(self._tokens)
        for length, followed in self._followed.items():
            if length <= end:
                n_gram = tuple(self._tokens[-length:])
                followed.pop(n_gram, None)  # so that the order is by the last occurrence
                followed[n_gram] = end
                if len(followed) > self._window:
                    del followed[next(iter(followed))]
        self._tokens.append(token)

    def propose(self, k: int) -> Tokens:
        """Return the `k` tokens that may come next, or none where the end of the sequence has not occurred before.

        They are what followed the last occurrence of the longest matching n-gram. Where that reaches the end of the
        sequence, it continues with what was proposed, as in LZ77, so that a repetition is proposed for any length.
        """
        for length, followed in self._followed.items():
            start = followed.get(tuple(self._tokens[-length:]))
            if start is not None:
                period = len(self._tokens) - start
                return np.array([self._tokens[start + at % period] for at in range(k)], dtype=np.int32)
        return np.empty(0, dtype=np.int32)
