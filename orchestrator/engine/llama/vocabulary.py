"""Turn text into a model's tokens and back."""

import ctypes
import time
from functools import lru_cache
from typing import Any

import llama_cpp.llama_cpp as lib

from orchestrator.engine.llama.batch import Tokens, as_tokens

_KEPT = 256
_LONGEST_KEPT = 1 << 15
"""So many texts keep their tokens, none of more characters: 32 MiB at most."""


class Vocabulary:
    """The tokens of one model. `end` are those that end a generation; `bos` is -1 where there is none.

    `llama_seconds` is how long llama.cpp took, in all, to make tokens of texts.
    """

    def __init__(self, model: Any) -> None:
        self.handle: Any = lib.llama_model_get_vocab(model)
        self.size: int = lib.llama_vocab_n_tokens(self.handle)
        self.end = frozenset(t for t in range(self.size) if lib.llama_vocab_is_eog(self.handle, t))
        self.bos: int = lib.llama_vocab_bos(self.handle)
        self.eos: int = lib.llama_vocab_eos(self.handle)
        self.adds_bos = bool(lib.llama_vocab_get_add_bos(self.handle)) and self.bos >= 0
        self.adds_space = meta(model, "tokenizer.ggml.model") == "llama" and (
            meta(model, "tokenizer.ggml.add_space_prefix") != "false"
        )
        self.llama_seconds = 0.0
        self._buffer = ctypes.create_string_buffer(64)
        # All of them now, in some dozen milliseconds: to ask for one between two steps takes as long as all else there.
        self._pieces = [self._spell(token, special=False) for token in range(self.size)]
        self._kept = lru_cache(_KEPT)(self._frozen)

    def tokenize(self, text: str, special: bool, *, whole: bool = False) -> list[int]:
        """Return the tokens of a text; `special` lets the text spell control tokens.

        `whole` adds what the model wants around a text that is all of its input, such as BOS; else there is none.
        """
        data = text.encode()
        room = len(data) + 8
        tokens = (ctypes.c_int32 * room)()
        started = time.monotonic()
        count = lib.llama_tokenize(self.handle, data, len(data), tokens, room, whole, special)
        if count < 0:
            tokens = (ctypes.c_int32 * -count)()
            count = lib.llama_tokenize(self.handle, data, len(data), tokens, -count, whole, special)
        self.llama_seconds += time.monotonic() - started
        return list(tokens[:count])

    def tokens_of(self, text: str, special: bool) -> Tokens:
        """Return the tokens of a part of a prompt, not to be changed. They are kept for a while: prompts begin alike,
        and a conversation comes back with each of its turns.
        """
        make = self._kept if len(text) <= _LONGEST_KEPT else self._frozen
        return make(text, special)

    def _frozen(self, text: str, special: bool) -> Tokens:
        tokens = as_tokens(self.tokenize(text, special))
        tokens.flags.writeable = False
        return tokens

    def piece(self, token: int) -> bytes:
        """Return the bytes of a token; none for control tokens."""
        return self._pieces[token]

    def text(self, token: int) -> str:
        """Return how a token is spelled in a template, control tokens included; empty for no token."""
        return self._spell(token, special=True).decode("utf-8", "replace") if 0 <= token < self.size else ""

    def _spell(self, token: int, special: bool) -> bytes:
        buffer = self._buffer
        count = lib.llama_token_to_piece(self.handle, token, buffer, len(buffer), 0, special)
        if count < 0:
            buffer = ctypes.create_string_buffer(-count)
            count = lib.llama_token_to_piece(self.handle, token, buffer, -count, 0, special)
        return buffer.raw[:count]


def meta(model: Any, key: str) -> str:
    """Return a value of the model's header as text, empty where there is none."""
    text = ctypes.create_string_buffer(256)
    count = lib.llama_model_meta_val_str(model, key.encode(), text, 256)
    return text.value.decode("utf-8", "replace") if count >= 0 else ""
