"""Draft by prompt lookup: propose what followed an earlier occurrence of the last tokens."""

from dataclasses import dataclass, field

import numpy as np

from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.kv.prefix_tree import Tokens
from orchestrator.engine.llama import Llama
from orchestrator.engine.speculation.drafter import Beat, Drafter, Offer
from orchestrator.engine.worker.sequence import Sequence

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


_NOTHING = np.empty(0, dtype=np.int32)


@dataclass(slots=True)
class _Indexed:
    lookup: PromptLookup
    output: int = 0  # output tokens that `lookup` has
    draft: Tokens = field(default_factory=lambda: _NOTHING)


class PromptLookupDrafter(Drafter):
    def __init__(self, spec: EngineSpec, target: Llama, beat: Beat) -> None:
        assert spec.prompt_lookup is not None, "the option turns this drafter on"
        self._options = spec.prompt_lookup
        self._texts: dict[int, _Indexed] = {}  # by the sequence's number

    def accept(self, sequence: Sequence, most: int) -> Offer:
        text = self._texts.get(sequence.number)
        if text is None:
            text = self._texts[sequence.number] = _Indexed(PromptLookup(sequence.prompt, self._options.ngram))
        for token in sequence.output[text.output :]:
            text.lookup.append(token)
        text.output = len(sequence.output)
        text.draft = text.lookup.propose(max(0, min(self._options.k, most)))
        return Offer(len(text.draft), int(text.draft[0]) if len(text.draft) else None)

    def propose(self, sequences: list[Sequence], lengths: list[int]) -> list[Tokens]:
        drafts = (self._texts[sequence.number].draft for sequence in sequences)
        return [draft[:length] for draft, length in zip(drafts, lengths, strict=True)]

    def forget(self, sequence: Sequence) -> None:
        self._texts.pop(sequence.number, None)
