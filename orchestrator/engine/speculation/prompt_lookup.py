"""Draft by prompt lookup: propose what followed an earlier occurrence of the last tokens."""

import numpy as np

from orchestrator.engine.kv.prefix_tree import Tokens

WINDOW = 8192  # n-grams per length, about 1.5 MB for each length

MIN_N_GRAM = 2  # A single token says too little about the next one.


class PromptLookup:
    """The n-grams of one sequence, prompt and output, up to the length `longest`.

    It stores the last `window` n-grams of each length that have a successor, so the end never matches itself.
    """

    def __init__(self, prompt: Tokens, longest: int, window: int = WINDOW) -> None:
        self._window = window
        self._tokens: list[int] = prompt.tolist()
        lengths = range(longest, min(MIN_N_GRAM, longest) - 1, -1)
        self._followed = {length: self._n_grams(length) for length in lengths}

    def _n_grams(self, length: int) -> dict[tuple[int, ...], int]:
        # Built in C (zip), because prompts are long.
        end = len(self._tokens)
        first = max(0, end - length - self._window)
        columns = (self._tokens[first + offset : end] for offset in range(length))
        return dict(zip(zip(*columns, strict=False), range(first + length, end), strict=False))

    def append(self, token: int) -> None:
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
        """Return `k` draft tokens, or none if the last tokens have not occurred before.

        They follow the last occurrence of the longest matching n-gram.
        """
        for length, followed in self._followed.items():
            start = followed.get(tuple(self._tokens[-length:]))
            if start is not None:
                period = len(self._tokens) - start
                # At the end of the sequence the draft continues with itself, as in LZ77: repetitions of any length.
                return np.array([self._tokens[start + at % period] for at in range(k)], dtype=np.int32)
        return np.empty(0, dtype=np.int32)
