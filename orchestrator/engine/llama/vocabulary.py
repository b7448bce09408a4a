"""Turn text into a model's tokens and back."""

import copy
import ctypes
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import orchestrator.engine.llama.binding as lib
from orchestrator.engine.llama.batch import Tokens, as_tokens

_CACHED = 256  # texts; with the next line 32 MiB at most
_LONGEST_CACHED = 1 << 15  # characters
# Other vocabularies lose text: they make one space of several, or one token of an unknown word.
_KEEPING = ("llama", "gpt2")
_CACHED_TEXTS = 8  # sets of texts, see `holding`


class FimTokens(NamedTuple):
    """The control tokens with which a model fills a place in a text; -1 for a missing one."""

    prefix: int  # precedes the text before the place
    suffix: int  # precedes the text after it
    middle: int  # precedes the generated text
    repository: int  # precedes the name of a repository
    file: int  # precedes the name of a file


class Vocabulary:
    """The tokens of one model. `bos`, `eos` and `sep` are -1 if missing."""

    def __init__(self, model: Any) -> None:
        self.handle: Any = lib.llama_model_get_vocab(model)
        self.size: int = lib.llama_vocab_n_tokens(self.handle)
        self.end = frozenset(t for t in range(self.size) if lib.llama_vocab_is_eog(self.handle, t))
        self.bos: int = lib.llama_vocab_bos(self.handle)
        self.eos: int = lib.llama_vocab_eos(self.handle)
        # Whether the model needs BOS at the start of a prompt.
        self.adds_bos = bool(lib.llama_vocab_get_add_bos(self.handle)) and self.bos >= 0
        self.sep: int = lib.llama_vocab_sep(self.handle)
        self.adds_sep = bool(lib.llama_vocab_get_add_sep(self.handle)) and self.sep >= 0
        self.adds_eos = bool(lib.llama_vocab_get_add_eos(self.handle)) and self.eos >= 0
        kind = meta(model, "tokenizer.ggml.model")
        # Whether tokenizing prepends a space.
        self.adds_space = kind == "llama" and meta(model, "tokenizer.ggml.add_space_prefix") != "false"
        self.keeps_all = kind in _KEEPING  # so a text has at least its bytes / `longest` tokens
        self.fim = _fim_tokens(self.handle)
        self.why_no_fim = lib.why_not("infilling") or "its vocabulary has no FIM tokens"
        self.llama_seconds = 0.0  # total time to tokenize
        self._buffer = ctypes.create_string_buffer(64)
        # All are made now, in a few dozen milliseconds: asking llama.cpp for one takes as long as the rest of a step.
        self._pieces = [self._spell(token, special=False) for token in range(self.size)]
        # Which tokens are control tokens, of shape (size,), and their spellings.
        self.is_control = np.array([self._is_control(t) for t in range(self.size)], np.bool_)
        self.control = frozenset(map(self.text, np.flatnonzero(self.is_control).tolist())) - {""}
        self.longest = max(map(len, self._pieces), default=0) or 1  # bytes
        self._cached = lru_cache(_CACHED)(self._frozen)
        self._holding = lru_cache(_CACHED_TEXTS)(self._find_holding)

    def for_thread(self) -> "Vocabulary":
        """Return the same vocabulary with its own caches and buffers, for another thread."""
        duplicate = copy.copy(self)
        duplicate.llama_seconds = 0.0
        duplicate._buffer = ctypes.create_string_buffer(64)
        duplicate._cached = lru_cache(_CACHED)(duplicate._frozen)
        duplicate._holding = lru_cache(_CACHED_TEXTS)(duplicate._find_holding)
        return duplicate

    def tokenize(self, text: str, special: bool, *, whole: bool = False) -> list[int]:
        """Return the tokens of a text. With `special`, names of control tokens in it become these tokens.

        With `whole`, the tokens that the model needs around its whole input are added, such as BOS.
        """
        data = text.encode()
        most = len(data) + 8
        tokens = (ctypes.c_int32 * most)()
        started = time.monotonic()
        count = lib.llama_tokenize(self.handle, data, len(data), tokens, most, whole, special)
        if count < 0:
            tokens = (ctypes.c_int32 * -count)()
            count = lib.llama_tokenize(self.handle, data, len(data), tokens, -count, whole, special)
        self.llama_seconds += time.monotonic() - started
        return list(tokens[:count])

    def tokens_of(self, text: str, special: bool) -> Tokens:
        """Return the tokens of a part of a prompt, as a read-only array."""
        # Cached, because many prompts start alike, and each turn of a conversation repeats the ones before it.
        make = self._cached if len(text) <= _LONGEST_CACHED else self._frozen
        return make(text, special)

    def message_ends(self, tokens: Tokens) -> list[int]:
        """Return the places of control tokens that follow text, which end a message."""
        control = self.is_control[tokens]
        return (np.flatnonzero(control[1:] & ~control[:-1]) + 1).tolist()

    def end_of_documents(self, tokens: Tokens, start: int = 0) -> int:
        """Return where the last paragraph of messages starts, which says what to do with the documents before it.

        That is behind the last blank line from token `start` on, or `start` without one.
        """
        ends = self.message_ends(tokens)
        pieces = [self._pieces[token] or b"\0" for token in tokens[start : ends[-1] if ends else None].tolist()]
        _, blank_line, paragraph = b"".join(pieces).rpartition(b"\n\n")
        if not blank_line:
            return start
        rest = len(paragraph)
        while rest > 0:
            rest -= len(pieces.pop())
        return start + len(pieces)

    def _is_control(self, token: int) -> bool:
        piece = self._pieces[token]
        if not (piece.startswith(b"<|") and piece.endswith(b"|>")):
            return not piece
        # llama.cpp treats some, such as `<|start|>`, as normal text.
        return bool(lib.llama_vocab_get_attr(self.handle, token) & lib.LLAMA_TOKEN_ATTR_USER_DEFINED)

    def _frozen(self, text: str, special: bool) -> Tokens:
        tokens = as_tokens(self.tokenize(text, special))
        tokens.flags.writeable = False
        return tokens

    def piece(self, token: int) -> bytes:
        """Return the bytes of a token's text; empty for control tokens."""
        return self._pieces[token]

    def silent(self, texts: Sequence[str]) -> dict[int, bytes]:
        """Return the tokens that are spelled like one of these texts but whose piece is empty, with that text."""
        spellings: dict[int, bytes] = {}
        for text in texts:
            tokens = self.tokenize(text, special=True)
            if len(tokens) == 1 and not self.piece(tokens[0]) and self.text(tokens[0]) == text:
                spellings[tokens[0]] = text.encode()
        return spellings

    def holding(self, texts: tuple[str, ...]) -> npt.NDArray[np.bool_]:
        """Return which tokens contain one of these texts, as an array of shape (vocabulary,)."""
        return self._holding(texts)

    def _find_holding(self, texts: tuple[str, ...]) -> npt.NDArray[np.bool_]:
        needles = [text.encode() for text in texts]
        return np.array([any(needle in piece for needle in needles) for piece in self._pieces], np.bool_)

    def difference(self, other: "Vocabulary", name: str) -> str | None:
        """Return how the vocabulary of another model, called `name`, differs from this one; None if it does not."""
        if other.size != self.size:
            return f"{name} has {other.size} tokens, the model {self.size}"
        pairs = ((token, other.text(token), self.text(token)) for token in range(self.size))
        return next(
            (f"token {token} is {its!r} in {name} and {own!r} in the model" for token, its, own in pairs if its != own),
            None,
        )

    def text(self, token: int) -> str:
        """Return a template's spelling of any token, control tokens included; empty if there is no such token."""
        return self._spell(token, special=True).decode("utf-8", "replace") if 0 <= token < self.size else ""

    def spelled(self, token: int) -> bytes:
        """Return the bytes of a token; for a control token, its name."""
        return self._pieces[token] or self._spell(token, special=True)

    def _spell(self, token: int, special: bool) -> bytes:
        buffer = self._buffer
        count = lib.llama_token_to_piece(self.handle, token, buffer, len(buffer), 0, special)
        if count < 0:
            buffer = ctypes.create_string_buffer(-count)
            count = lib.llama_token_to_piece(self.handle, token, buffer, -count, 0, special)
        return buffer.raw[:count]


def _fim_tokens(vocab: Any) -> FimTokens:
    if lib.why_not("infilling"):
        return FimTokens(-1, -1, -1, -1, -1)
    return FimTokens(
        lib.llama_vocab_fim_pre(vocab),
        lib.llama_vocab_fim_suf(vocab),
        lib.llama_vocab_fim_mid(vocab),
        lib.llama_vocab_fim_rep(vocab),
        lib.llama_vocab_fim_sep(vocab),
    )


def meta(model: Any, key: str) -> str:
    """Return a value of the model file's header as text; empty if absent."""
    text = ctypes.create_string_buffer(256)
    count = lib.llama_model_meta_val_str(model, key.encode(), text, 256)
    return text.value.decode("utf-8", "replace") if count >= 0 else ""
