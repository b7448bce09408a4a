"""Restrict the tokens of a sequence to those that its grammar allows."""

import ctypes
from collections.abc import Collection
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
import numpy.typing as npt

from orchestrator.engine.errors import BadGrammar
from orchestrator.engine.llama.vocabulary import Vocabulary

Logits = npt.NDArray[np.float32]

MAX_NESTING = 100
"""How deep the parentheses of a grammar may be nested: llama.cpp's parser is recursive."""
_CACHED = 32
"""How many parsed grammars are kept."""
_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class Grammar:
    """The state of one sequence in its grammar. It must not be used after `close`."""

    def __init__(self, sampler: Any, size: int, forbidden: npt.NDArray[np.int32]) -> None:
        """`sampler` is llama.cpp's, the vocabulary has `size` tokens, and `forbidden` ones are never allowed."""
        self._sampler = sampler
        self._forbidden = forbidden
        self._never = frozenset(forbidden.tolist())
        self._one = np.zeros(1, _CANDIDATE)
        self._one_array = _candidates(self._one)
        self._size = size

    def allows(self, token: int) -> bool:
        """Return whether this token may come next. That takes far less time than `mask`."""
        self._one[0] = (token, 0.0, 0.0)
        self._one_array.size = 1
        lib.llama_sampler_apply(self._sampler, ctypes.byref(self._one_array))
        return bool(self._one["logit"][0] == 0.0) and token not in self._never

    def allows_each(self, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """Return which of these tokens may come next; a negative number is no token, and may not."""
        known = np.flatnonzero(tokens >= 0)
        candidates = np.zeros(len(known), _CANDIDATE)
        candidates["id"] = tokens[known]
        if len(known):
            lib.llama_sampler_apply(self._sampler, ctypes.byref(_candidates(candidates)))
        allowed = np.zeros(len(tokens), np.bool_)
        allowed[known] = (candidates["logit"] == 0.0) & ~np.isin(tokens[known], self._forbidden)
        return allowed

    def clone(self) -> "Grammar":
        """Return a grammar in the same state, which goes its own way from here on."""
        return Grammar(lib.llama_sampler_clone(self._sampler), self._size, self._forbidden)

    def mask(self, logits: Logits) -> Logits:
        """Return a copy of the logits, with minus infinity for tokens that may not come next."""
        candidates = np.empty(self._size, _CANDIDATE)
        candidates["id"] = np.arange(self._size, dtype=np.int32)
        candidates["logit"] = logits
        lib.llama_sampler_apply(self._sampler, ctypes.byref(_candidates(candidates)))
        allowed = np.ascontiguousarray(candidates["logit"])
        allowed[self._forbidden] = -np.inf
        return allowed

    def accept(self, token: int) -> None:
        """Go on to the state after a token. It must be one that is allowed: another one aborts the process."""
        lib.llama_sampler_accept(self._sampler, token)

    def close(self) -> None:
        """Free the memory that llama.cpp holds for it."""
        if self._sampler:
            lib.llama_sampler_free(self._sampler)
            self._sampler = None


class Grammars:
    """Parses grammars in GBNF, and caches the last ones: steps of one kind use the same grammar again and again."""

    def __init__(self, vocab: Vocabulary, errors: list[str]) -> None:
        self._vocab = vocab
        self._errors = errors
        self._parsed: dict[str, Any] = {}
        # Control tokens, but for end tokens: llama.cpp's grammars match their names, but they make no text.
        silent = [token for token in range(vocab.size) if not vocab.piece(token) and token not in vocab.end]
        self._forbidden = np.array(silent, np.int32)

    def start(self, text: str, marks: Collection[int] = ()) -> Grammar:
        """Return a grammar in its first state. Raises BadGrammar.

        `marks` are control tokens that it may allow, because they make text here.
        """
        master = self._parsed.get(text)
        if master is None:
            master = self._parse(text)
            if len(self._parsed) >= _CACHED:
                lib.llama_sampler_free(self._parsed.pop(next(iter(self._parsed))))
            self._parsed[text] = master
        forbidden = self._forbidden[~np.isin(self._forbidden, list(marks))] if marks else self._forbidden
        return Grammar(lib.llama_sampler_clone(master), self._vocab.size, forbidden)

    def _parse(self, text: str) -> Any:
        if _nesting(text) > MAX_NESTING:
            raise BadGrammar(f"the grammar is nested more than {MAX_NESTING} deep")
        if "\0" in text:
            raise BadGrammar("the grammar holds a zero byte")
        self._errors.clear()
        sampler = lib.llama_sampler_init_grammar(self._vocab.handle, text.encode(), b"root")
        if not sampler:
            raise BadGrammar(self._errors[0] if self._errors else "llama.cpp cannot parse the grammar")
        return sampler


def _candidates(array: npt.NDArray[Any]) -> Any:
    data = array.ctypes.data_as(ctypes.POINTER(lib.llama_token_data))
    return lib.llama_token_data_array(data=data, size=len(array), selected=-1, sorted=False)


def _nesting(text: str) -> int:
    depth = deepest = 0
    for letter in text:
        if letter == "(":
            depth += 1
            deepest = max(deepest, depth)
        elif letter == ")":
            depth -= 1
    return deepest
