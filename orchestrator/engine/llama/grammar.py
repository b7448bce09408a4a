"""Restrict the tokens of a sequence to those that its grammar allows."""

import ctypes
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

import orchestrator.engine.llama.binding as lib
from orchestrator.engine.errors import BadGrammar
from orchestrator.engine.llama.batch import Tokens, as_tokens
from orchestrator.engine.llama.vocabulary import Vocabulary

Logits = npt.NDArray[np.float32]

MAX_NESTING = 100  # of parentheses: llama.cpp's parser is recursive
_CACHED = 32  # parsed grammars
_LIKELIEST = 512  # tokens that are tried first; nearly always the likeliest allowed token is among them
_REMEMBERED = 64  # tokens allowed at one place that are tried at the next
# If a grammar allows two of these bytes, the text can continue in several ways. Most such places are detected by them.
_COMMON_BYTES = b'"]},: \n\\-01ae'
_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class TokensByFirstByte:
    """The tokens of a vocabulary by the first byte of their text.

    A grammar refuses every token that starts with a refused byte. So most tokens need no check if few bytes are
    possible, as between JSON values and in numbers and names.
    """

    def __init__(self, vocab: Vocabulary) -> None:
        pieces = [vocab.piece(token) for token in range(vocab.size)]
        first = np.array([piece[0] if piece else 256 for piece in pieces], np.int64)
        order = np.argsort(first, kind="stable")
        bounds = np.searchsorted(first[order], np.arange(258)).tolist()
        self._groups = [order[bounds[at] : bounds[at + 1]].astype(np.int32) for at in range(257)]
        of_byte = {piece[0]: token for token, piece in enumerate(pieces) if len(piece) == 1}
        self._single = as_tokens([of_byte.get(byte, -1) for byte in range(256)])
        common = self._single[list(_COMMON_BYTES)]
        self._common = np.zeros(np.count_nonzero(common >= 0), _CANDIDATE)
        self._common["id"] = common[common >= 0]
        self._common_array = _candidates(self._common)
        self._common_logits: Logits = self._common["logit"]  # shares the memory
        self._all = np.arange(vocab.size, dtype=np.int32)

    def may_follow(self, grammar: "Grammar") -> Tokens:
        """Return a superset of the allowed tokens: those with a possible first byte, and those without text."""
        possible = grammar.allows_each(self._single) | (self._single < 0)
        groups = [*(self._groups[byte] for byte in np.flatnonzero(possible)), self._groups[256]]
        # From half of the vocabulary on, all tokens in order take less time for each token.
        return self._all if sum(map(len, groups)) > len(self._all) / 2 else np.concatenate(groups)

    def with_one_first_byte(self, grammar: "Grammar") -> Tokens | None:
        """Return all tokens that the grammar allows next, or None if they start with different bytes.

        Tokens without text, such as end tokens, start with no byte and are included. None takes far less time than a
        mask.
        """
        if grammar.allows_several(self._common_logits, self._common_array):
            return None
        possible = np.flatnonzero(grammar.allows_each(self._single) | (self._single < 0))
        groups = [group for byte in possible if len(group := self._groups[byte])]
        if len(groups) > 1:
            return None
        tokens = np.concatenate([*groups, self._groups[256]])
        return tokens[grammar.allows_each(tokens)]


class Grammar:
    """The state of one sequence in its grammar. It must not be used after `close`."""

    def __init__(self, sampler: Any, tokens: TokensByFirstByte, forbidden: npt.NDArray[np.bool_]) -> None:
        """`sampler` is llama.cpp's; `forbidden` marks the tokens that are never allowed."""
        self._sampler = sampler
        self._tokens = tokens
        self._forbidden = forbidden
        self._allowed_before: Tokens = np.empty(0, np.int32)
        self._one = lib.llama_token_data(id=0, logit=0.0, p=0.0)
        self._one_array = lib.llama_token_data_array(data=ctypes.pointer(self._one), size=1, selected=-1, sorted=False)

    def allows(self, token: int) -> bool:
        """Return whether this token may come next. Far faster than `mask`."""
        self._one.id, self._one.logit = token, 0.0
        self._one_array.size = 1
        lib.llama_sampler_apply(self._sampler, ctypes.byref(self._one_array))
        return self._one.logit == 0.0 and not self._forbidden[token]

    def allows_each(self, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """Return which of these tokens may come next. Negative numbers are no tokens and may not."""
        valid = np.flatnonzero(tokens >= 0)
        candidates = np.zeros(len(valid), _CANDIDATE)
        candidates["id"] = tokens[valid]
        if len(valid):
            lib.llama_sampler_apply(self._sampler, ctypes.byref(_candidates(candidates)))
        allowed = np.zeros(len(tokens), np.bool_)
        allowed[valid] = (candidates["logit"] == 0.0) & ~self._forbidden[tokens[valid]]
        return allowed

    def allows_several(self, logits: Logits, array: Any) -> bool:
        """Return whether at least two of some candidates, none of them control tokens, may come next.

        Overwrites `logits`. `array` is their llama_token_data_array: making it takes longer than checking a dozen.
        """
        logits.fill(0.0)
        lib.llama_sampler_apply(self._sampler, ctypes.byref(array))
        return len(logits) - int(np.count_nonzero(logits)) > 1

    def clone(self) -> "Grammar":
        return Grammar(lib.llama_sampler_clone(self._sampler), self._tokens, self._forbidden)

    def mask(self, logits: Logits) -> Logits:
        """Return a copy of the logits, with minus infinity for tokens that may not come next."""
        allowed = self._allowed_of(self._tokens.may_follow(self))
        masked = np.full(len(logits), -np.inf, np.float32)
        masked[allowed] = logits[allowed]
        return masked

    def allowed_by_likelihood(self, logits: Logits) -> Iterator[Tokens]:
        """Yield sets of tokens that may come next, ascending: first a likely part of the vocabulary, then all.

        The first non-empty set contains the likeliest allowed token.
        """
        # Checking all tokens takes longer than the model's part of a step, and finding the likeliest ones is slow, too.
        # If the model would rather write something else, mostly the same tokens, such as digits, are allowed at several
        # places in a row. So what was allowed at the last place and is now gives a lower bound of the likelihood.
        still_allowed = self._allowed_of(self._allowed_before)
        least = logits[still_allowed].max(initial=-np.inf)
        if least > -np.inf:
            likely = np.flatnonzero(logits >= least).astype(np.int32)
            if len(likely) > _LIKELIEST:
                likely = self._tokens.may_follow(self)
                likely = likely[logits[likely] >= least]
            yield self._remembered(likely)
        elif len(logits) > _LIKELIEST:
            yield self._remembered(
                np.flatnonzero(logits >= np.partition(logits, -_LIKELIEST)[-_LIKELIEST]).astype(np.int32)
            )
        yield self._remembered(self._tokens.may_follow(self))

    def _remembered(self, tokens: Tokens) -> Tokens:
        allowed = self._allowed_of(tokens)
        if len(allowed):
            self._allowed_before = allowed[:_REMEMBERED]
        return allowed

    def _allowed_of(self, tokens: Tokens) -> Tokens:
        return np.sort(tokens[self.allows_each(tokens)])

    def allowed_if_alike(self) -> Tokens | None:
        """Return all tokens that may come next, or None if they start with different bytes."""
        return self._tokens.with_one_first_byte(self)

    def accept(self, token: int) -> None:
        """Advance by an allowed token. Any other token aborts the process."""
        lib.llama_sampler_accept(self._sampler, token)

    def close(self) -> None:
        if self._sampler:
            lib.llama_sampler_free(self._sampler)
            self._sampler = None


class Grammars:
    """Parses grammars in GBNF, and caches the latest: steps of one kind use the same grammar again and again."""

    def __init__(self, vocab: Vocabulary, errors: list[str]) -> None:
        self._vocab = vocab
        self._errors = errors
        self._parsed: dict[str, Any] = {}
        # Control tokens, but for end tokens: llama.cpp's grammars match their names, but they make no text.
        silent = (not vocab.piece(token) and token not in vocab.end for token in range(vocab.size))
        self._forbidden = np.fromiter(silent, np.bool_, vocab.size)
        self._tokens = TokensByFirstByte(vocab)

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
        forbidden = self._forbidden
        if marks:
            forbidden = forbidden.copy()
            forbidden[list(marks)] = False
        return Grammar(lib.llama_sampler_clone(master), self._tokens, forbidden)

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
