"""llguidance in the place of the engine's grammars: a prototype with the methods of `Grammar`.

The functions make its grammars of what ours are made of. Each raises BadGrammar.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import llguidance
import llguidance.numpy
import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher, LLTokenizer
from llguidance.gbnf_to_lark import gbnf_to_lark

from orchestrator.engine.contract import COMPACT
from orchestrator.engine.errors import BadGrammar
from orchestrator.engine.llama import Grammar, Logits, Tokens, Vocabulary, as_tokens
from orchestrator.registry.call_syntax import CallSyntax
from orchestrator.task.taskir.formats import FORMATS
from orchestrator.task.taskir.patterns import BadPattern, read_pattern

_WHITE_SPACE: Final = r"( |\n[ \t]{0,20})"  # where ours allows it, next to none
_LONGEST: Final = 1024  # characters of a string with a pattern


class Guided(Grammar):
    """The state of one sequence in a grammar of llguidance."""

    def __init__(self, matcher: LLMatcher, vocab: Vocabulary) -> None:
        self.matcher = matcher
        self._vocab = vocab
        self._ends = as_tokens(sorted(vocab.end))
        self._words: npt.NDArray[np.int32] | None = None  # the mask of the next token, 32 tokens in each number

    def allows(self, token: int) -> bool:
        if self._words is not None:
            return bool(self._words[token >> 5] >> (token & 31) & 1)
        if token in self._vocab.end:
            return bool(self.matcher.is_accepting())
        return bool(self.matcher.validate_tokens([token]) == 1)

    def use_mask(self, words: npt.NDArray[np.int32]) -> None:
        """Take the mask of the next token, of shape (numbers of 32 tokens,)."""
        self._words = words

    def _allowed(self) -> npt.NDArray[np.bool_]:
        if self._words is None:
            self._words = llguidance.numpy.allocate_token_bitmask(1, self._vocab.size)[0]
            self.matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)
        bits = np.unpackbits(self._words.view(np.uint8), count=self._vocab.size, bitorder="little")
        return bits.view(np.bool_)

    def allows_each(self, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        return self._allowed()[tokens] & (tokens >= 0)

    def mask(self, logits: Logits) -> Logits:
        return np.where(self._allowed(), logits, np.float32(-np.inf))

    def allowed_by_likelihood(self, logits: Logits) -> Iterator[Tokens]:
        yield np.flatnonzero(self._allowed()).astype(np.int32)

    def allowed_if_alike(self) -> Tokens | None:
        if self.matcher.is_stopped():
            return self._ends
        # Without a forced byte, tokens that start differently may come next. That takes 1 µs to know, and a mask 50.
        return np.flatnonzero(self._allowed()).astype(np.int32) if self.matcher.compute_ff_bytes() else None

    def accept(self, token: int) -> None:
        self._words = None
        if not self.matcher.consume_token(token):
            raise BadGrammar(self.matcher.get_error())

    def clone(self) -> "Guided":
        return Guided(self.matcher.deep_copy(), self._vocab)

    def close(self) -> None:
        pass


class _Pieces:
    # What llguidance wants to know of a tokenizer. A token that starts with the byte 255 makes no text.
    def __init__(self, vocab: Vocabulary) -> None:
        self._vocab = vocab
        self.eos_token_id = min(vocab.end)
        self.bos_token_id = vocab.bos if vocab.bos >= 0 else None
        self.tokens = [vocab.piece(token) or b"\xff" + vocab.spelled(token) for token in range(vocab.size)]
        self.special_token_ids = [token for token in range(vocab.size) if not vocab.piece(token)]

    def __call__(self, text: str | bytes) -> list[int]:
        return self._vocab.tokenize(text if isinstance(text, str) else text.decode("utf-8", "replace"), special=False)


class Guidance:
    """Makes grammars of llguidance for one vocabulary."""

    def __init__(self, vocab: Vocabulary) -> None:
        self._vocab = vocab
        pieces = llguidance.TokenizerWrapper(_Pieces(vocab))
        self._tokenizer = LLTokenizer(pieces, n_vocab=vocab.size, eos_token=sorted(vocab.end))

    def start(self, grammar: str) -> Guided:
        """Return a grammar in its first state. Raises BadGrammar."""
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise BadGrammar(matcher.get_error().splitlines()[0])
        return Guided(matcher, self._vocab)


def guided_schema(schema: object) -> str:
    """Return llguidance's grammar of a JSON Schema, which means what ours does if llguidance can. Raises BadGrammar."""
    if schema is not True and not isinstance(schema, dict):
        raise BadGrammar("no JSON value satisfies the schema, or it is none")
    compact = isinstance(schema, dict) and bool(schema.get(COMPACT))
    space = {"whitespace_flexible": False} if compact else {"whitespace_pattern": _WHITE_SPACE}
    # Lenient: what a grammar cannot express is ignored, and checked in the whole answer.
    options = {**space, "lenient": True, "json_allow_general_unicode_escapes": True}
    try:
        text = json.dumps({} if schema is True else _adapted(schema))
        return str(LLMatcher.grammar_from_json_schema(text, overrides=options))
    except (ValueError, RecursionError, AttributeError, TypeError) as error:
        raise BadGrammar(f"not a JSON Schema: {error}") from error


def _adapted(schema: Any) -> Any:
    # Formats are ours, since those of llguidance allow the 30th of February, and what its regular expressions lack is
    # left to the validator.
    if not isinstance(schema, dict):
        return schema
    if schema.get("not", False) in (True, {}):
        return False
    if isinstance(schema.get("items"), list):
        raise BadGrammar("items: a list of schemas was a tuple before draft 2020-12", "items")
    parts = {key: _adapted_part(key, part) for key, part in schema.items() if key not in ("pattern", "format")}
    if pattern := next(_patterns(schema), None):
        kind = {} if {"anyOf", "oneOf", "allOf", "$ref"} & schema.keys() else {"type": "string"}
        parts = {"maxLength": _LONGEST, **kind, **parts, "pattern": pattern}  # otherwise a text may never end
    if isinstance(names := parts.get("properties"), dict):
        # An object has only the properties that the schema names, unless it says otherwise.
        unnamed = parts.get("additionalProperties", True)
        parts["properties"] = {**names, **{name: unnamed for name in schema.get("required", ()) if name not in names}}
        if "patternProperties" not in schema:
            parts.setdefault("additionalProperties", False)
    return parts


def _adapted_part(keyword: str, part: Any) -> Any:
    if keyword in ("properties", "patternProperties", "$defs", "definitions") and isinstance(part, dict):
        return {name: _adapted(inner) for name, inner in part.items()}
    if keyword in ("anyOf", "oneOf", "allOf", "prefixItems") and isinstance(part, list):
        return [_adapted(inner) for inner in part]
    return _adapted(part) if keyword in ("items", "additionalProperties") else part


def _patterns(schema: Mapping[str, Any]) -> Iterator[str]:
    written = [schema.get("pattern"), FORMATS[schema["format"]].written if schema.get("format") in FORMATS else None]
    for pattern in written:
        try:
            body = read_pattern(pattern).body if isinstance(pattern, str) else None
        except BadPattern:
            continue
        probe = json.dumps({"type": "string", "pattern": body})
        if body is not None and not LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(probe)):
            yield body


def guided_pattern(pattern: str) -> str:
    """Return llguidance's grammar of a text that matches a regular expression as a whole."""
    return str(LLMatcher.grammar_from_regex(pattern.removeprefix("^").removesuffix("$")))


def guided_gbnf(gbnf: str) -> str:
    """Return llguidance's grammar for one in GBNF, by the converter that it brings. Raises BadGrammar."""
    try:
        return str(LLMatcher.grammar_from_lark(gbnf_to_lark(gbnf)))
    except Exception as error:  # the converter raises this very class for an undefined rule
        raise BadGrammar(str(error)) from error


def guided_calls(syntax: CallSyntax, tools: Mapping[str, Any]) -> str:
    """Return llguidance's grammar of one or two calls in a family's syntax."""
    options = {"whitespace_pattern": _WHITE_SPACE, "json_allow_general_unicode_escapes": True}
    arguments = [json.dumps({"x-guidance": options, **_adapted(schema)}) for schema in tools.values()]
    bodies = [f"{json.dumps(name)} {_flexible(syntax.middle)} a{at}" for at, name in enumerate(tools)]
    more = f"({_flexible(syntax.separator + syntax.opening)} call)?" if syntax.several else ""
    rules = [
        f"start: {_flexible(syntax.start + syntax.opening)} call {more} {_flexible(syntax.end)}",
        f"call: ({' | '.join(bodies)}) {_flexible(syntax.closing)}",
        f"ws: /{_WHITE_SPACE}/?",
        *(f"a{at}: %json {schema}" for at, schema in enumerate(arguments)),
    ]
    return str(LLMatcher.grammar_from_lark("\n".join(rules)))


def _flexible(text: str) -> str:
    pieces = re.split(r"(\s+)", text)
    return " ".join("ws" if piece.isspace() else json.dumps(piece, ensure_ascii=False) for piece in pieces if piece)
