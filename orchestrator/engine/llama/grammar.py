"""Restrict the tokens of a sequence to those that its grammar allows."""

import ctypes
from collections.abc import Collection, Iterator
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
import numpy.typing as npt

from orchestrator.engine.errors import BadGrammar
from orchestrator.engine.llama.batch import Tokens, as_tokens
from orchestrator.engine.llama.vocabulary import Vocabulary

Logits = npt.NDArray[np.float32]

MAX_NESTING = 100
"""How deep the parentheses of a grammar may be nested: llama.cpp's parser is recursive."""
_CACHED = 32
"""How many parsed grammars are kept."""
_LIKELIEST = 512
"""How many of the likeliest tokens are looked at first. The likeliest allowed one is nearly always among them."""
_REMEMBERED = 64
"""At most so many of the tokens that were allowed at the last place are asked for at the next one."""
_COMMON_BYTES = b'"]},: \n\\-01ae'
"""Where a grammar allows two of these bytes, a text may go on in several ways: most places are told apart by that."""
_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class TokensByFirstByte:
    """The tokens of a vocabulary by the first byte of their text.

    A grammar refuses every token that begins with a byte which it refuses. So most tokens need not be looked at where
    only few bytes may come next, as between the values of JSON, and in numbers and names.
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
        self._common_logits: Logits = self._common["logit"]  # the same memory
        self._all = np.arange(vocab.size, dtype=np.int32)

    def may_follow(self, grammar: "Grammar") -> Tokens:
        """Return all tokens but those whose first byte the grammar refuses. Tokens without text are among them.

        Where that leaves out less than half of the vocabulary, it is returned whole: one after the other takes less
        time for each token.
        """
        possible = grammar.allows_each(self._single) | (self._single < 0)
        groups = [*(self._groups[byte] for byte in np.flatnonzero(possible)), self._groups[256]]
        return self._all if sum(map(len, groups)) > len(self._all) / 2 else np.concatenate(groups)

    def with_one_first_byte(self, grammar: "Grammar") -> Tokens | None:
        """Return all tokens that the grammar allows next, or None if they begin with different bytes.

        Tokens without text, such as end tokens, begin with no byte and are among them. To find out that there are
        different first bytes takes far less time than a mask.
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
        """`sampler` is llama.cpp's, `tokens` those of the vocabulary, and `forbidden` says which are never allowed."""
        self._sampler = sampler
        self._tokens = tokens
        self._forbidden = forbidden
        self._allowed_before: Tokens = np.empty(0, np.int32)
        self._one = lib.llama_token_data(id=0, logit=0.0, p=0.0)
        self._one_array = lib.llama_token_data_array(data=ctypes.pointer(self._one), size=1, selected=-1, sorted=False)

    def allows(self, token: int) -> bool:
        """Return whether this token may come next. That takes far less time than `mask`."""
        self._one.id, self._one.logit = token, 0.0
        self._one_array.size = 1
        lib.llama_sampler_apply(self._sampler, ctypes.byref(self._one_array))
        return self._one.logit == 0.0 and not self._forbidden[token]

    def allows_each(self, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """Return which of these tokens may come next; a negative number is no token, and may not."""
        known = np.flatnonzero(tokens >= 0)
        candidates = np.zeros(len(known), _CANDIDATE)
        candidates["id"] = tokens[known]
        if len(known):
            lib.llama_sampler_apply(self._sampler, ctypes.byref(_candidates(candidates)))
        allowed = np.zeros(len(tokens), np.bool_)
        allowed[known] = (candidates["logit"] == 0.0) & ~self._forbidden[tokens[known]]
        return allowed

    def allows_several(self, logits: Logits, array: Any) -> bool:
        """Return whether two of some candidates may come next, which are no control tokens. Their `logits` change.

        `array` is what llama.cpp calls these candidates. To make it takes longer than to look at a dozen of them.
        """
        logits.fill(0.0)
        lib.llama_sampler_apply(self._sampler, ctypes.byref(array))
        return len(logits) - int(np.count_nonzero(logits)) > 1

    def clone(self) -> "Grammar":
        """Return a grammar in the same state, which goes its own way from here on."""
        return Grammar(lib.llama_sampler_clone(self._sampler), self._tokens, self._forbidden)

    def mask(self, logits: Logits) -> Logits:
        """Return a copy of the logits, with minus infinity for tokens that may not come next."""
        allowed = self._allowed_of(self._tokens.may_follow(self))
        masked = np.full(len(logits), -np.inf, np.float32)
        masked[allowed] = logits[allowed]
        return masked

    def allowed_by_likelihood(self, logits: Logits) -> Iterator[Tokens]:
        """Yield the tokens that may come next, in ascending order: first those of a likely part of the vocabulary, then
        all. The first part that has any has the likeliest of all.

        To look at all tokens takes longer than the model's own part of a step, and to find the likeliest ones among
        them is slow, too. Where a model would rather write something else, one place after the other is asked for, and
        mostly the same tokens are allowed at all of them, such as digits. So what was allowed at the last place and is
        allowed now tells how likely a token has to be to come into question.
        """
        known = self._allowed_of(self._allowed_before)
        least = logits[known].max(initial=-np.inf)
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
        """Return which of these tokens may come next, and keep some of them for the next place."""
        allowed = self._allowed_of(tokens)
        if len(allowed):
            self._allowed_before = allowed[:_REMEMBERED]
        return allowed

    def _allowed_of(self, tokens: Tokens) -> Tokens:
        """Return which of these tokens may come next, in ascending order."""
        return np.sort(tokens[self.allows_each(tokens)])

    def allowed_if_alike(self) -> Tokens | None:
        """Return all tokens that may come next, or None if they begin with different bytes."""
        return self._tokens.with_one_first_byte(self)

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
