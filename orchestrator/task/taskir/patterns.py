"""Match text against regular expressions in time that is linear in the length of the text.

Models write the text, and it is matched on the event loop. Python's `re` backtracks, for some expressions 2^n times.
Rust's regex engine, which comes with pydantic, does not backtrack, and has no look-around and no back-references.

So an expression is read first. Look-ahead directly after a leading `^` becomes an expression of its own, which the text
has to match or must not match: `^(?=.*\\d)(?!0)\\w+$` is matched exactly. Any other look-around is left out, and a
back-reference stands for any text, so that the rest accepts all that the whole would accept.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pydantic_core import SchemaError, SchemaValidator, core_schema

MAX_CACHED = 64
"""How many compiled expressions are cached. One may take 10 MiB."""
MAX_PATTERN: Final = 10_000
"""How many characters an expression may have that is matched."""
_PIECE: Final = re.compile(
    r"(?P<back>\\[1-9][0-9]*|\\k<[^>]*>|\(\?P=[^)]*\))|(?P<look>\(\?<?[=!])"
    r"|(?P<group>\((?:\?(?:P?<[^>]*>|[a-zA-Z-]*:)?)?)|(?P<close>\))"
    r"|(?P<set>\[(?:\\.|[^\]\\])*\])|(?P<escape>\\.)|(?P<other>.)",
    re.DOTALL,
)
_NAMED: Final = re.compile(r"\(\?P?<")
_HYPHEN: Final = re.compile(r"(\\[dDwWsS])-(?!\])")
"""A hyphen behind a class of characters, as in `[\\w-.]`, stands for itself; Rust's engine wants a backslash there."""
_ANY_TEXT: Final = r"[\s\S]*"
_PLAIN: Final = {r"\<": "<", r"\>": ">", r"\0": r"\x00"}
"""Escapes that mean something else to Rust's engine than to ECMAScript's, which JSON Schema refers to."""


class BadPattern(Exception):
    """A text is no regular expression in any dialect. The message says why in one line."""


@dataclass(frozen=True, slots=True)
class LinearPattern:
    """What of an expression is matched. It accepts all texts that the expression accepts, and others if `relaxed`."""

    body: str | None
    """The expression without look-around, names and back-references; None if nothing of it can be matched."""
    ahead: tuple[tuple[str, bool], ...] = ()
    """Expressions that a text has to match too (true), or must not match."""
    relaxed: str = ""
    """What is not matched, and why; empty if the whole expression is matched."""


def patterns_in(schema: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield (path, pattern) for each pattern in a JSON Schema. `path` is where the schema itself is."""
    # Recursion is bounded: a parsed document is at most MAX_DEPTH deep.
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "pattern" and isinstance(value, str):
                yield (*path, key), value
            if key == "patternProperties" and isinstance(value, dict):
                yield from (((*path, key), pattern) for pattern in value)
            yield from patterns_in(value, (*path, key))
    elif isinstance(schema, list):
        for index, value in enumerate(schema):
            yield from patterns_in(value, (*path, index))


def matches(pattern: str, text: str) -> bool:
    """Return whether the expression matches anywhere in the text, as far as it can be matched. Raises `BadPattern`."""
    read = read_pattern(pattern)
    parts = (*read.ahead, *([] if read.body is None else [(read.body, True)]))
    return all(_compiled(part).isinstance_python(text) == wanted for part, wanted in parts)


@lru_cache(maxsize=1024)
def read_pattern(pattern: str) -> LinearPattern:
    """Return what of an expression can be matched. Raises `BadPattern`."""
    if len(pattern) > MAX_PATTERN:
        return LinearPattern(None, relaxed=f"it has {len(pattern)} characters, and may have {MAX_PATTERN}")
    pieces = _pieces(pattern)
    body, ahead, relaxed = _without_look_around(pieces, _closings(pieces, pattern))
    try:
        for part in (body, *(part for part, _ in ahead)):
            _compiled(part)
    except SchemaError as error:
        reason = str(error).splitlines()[-1].strip().removeprefix("error: ").removeprefix("SchemaError: ")
        return LinearPattern(None, relaxed=reason)
    return LinearPattern(body, ahead, relaxed)


_Piece = tuple[str, str]
"""The kind of a piece of an expression, a group of `_PIECE`, and its text."""


def _pieces(pattern: str) -> list[_Piece]:
    pieces: list[_Piece] = []
    for piece in _PIECE.finditer(pattern):
        kind, text = piece.lastgroup or "", piece[0]
        if kind == "other" and text in "[\\":
            raise _bad(pattern, "a class without its end" if text == "[" else "nothing follows the last backslash")
        if text in ("*", "+", "?") and (not pieces or pieces[-1][0] in ("group", "look") or pieces[-1][1] == "|"):
            raise _bad(pattern, f"{text} has nothing to repeat")
        pieces.append((kind, text))
    return pieces


def _closings(pieces: list[_Piece], pattern: str) -> dict[int, int]:
    """Return where each group ends, by where it begins."""
    closings: dict[int, int] = {}
    opened: list[int] = []
    for at, (kind, _) in enumerate(pieces):
        if kind in ("group", "look"):
            opened.append(at)
        elif kind == "close":
            if not opened:
                raise _bad(pattern, "a closing parenthesis without an opening one")
            closings[opened.pop()] = at
    if opened:
        raise _bad(pattern, "a group without its end")
    return closings


def _without_look_around(
    pieces: list[_Piece], closings: dict[int, int]
) -> tuple[str, tuple[tuple[str, bool], ...], str]:
    """Return the expression without look-around, leading look-ahead, and what was left out."""
    kept: list[str] = []
    ahead: list[tuple[str, bool]] = []
    left_out: dict[str, None] = {}
    has_choice, at = _has_choice(pieces, closings), 0
    while at < len(pieces):
        kind, text = pieces[at]
        if kind == "look":
            end = closings[at]
            inner = pieces[at + 1 : end]
            leads = kept == ["^"] and "<" not in text and not has_choice and not _is_quantified(pieces, end)
            if leads and all(kind not in ("look", "back") for kind, _ in inner):
                ahead.append((f"^(?:{''.join(map(_written, inner))})", "=" in text))
            else:
                kept.append("(?:)")
                left_out["look-behind" if "<" in text else "look-ahead that does not follow a leading ^"] = None
            at = end
        elif kind == "back":
            kept.append(_ANY_TEXT)
            left_out["a back-reference"] = None
        else:
            kept.append(_written(pieces[at]))
        at += 1
    why = f"{' and '.join(left_out)} cannot be matched in linear time" if left_out else ""
    return "".join(kept), tuple(ahead), why


def _written(piece: _Piece) -> str:
    """Return a piece as Rust's engine takes it. Names of groups are left out, since only back-references need them."""
    kind, text = piece
    if kind == "set":
        return _HYPHEN.sub(r"\1\\-", text)
    return "(" if kind == "group" and _NAMED.match(text) else _PLAIN.get(text, text)


def _has_choice(pieces: list[_Piece], closings: dict[int, int]) -> bool:
    """Return whether there are alternatives outside of groups."""
    at = 0
    while at < len(pieces):
        if pieces[at] == ("other", "|"):
            return True
        at = closings.get(at, at) + 1
    return False


def _is_quantified(pieces: list[_Piece], end: int) -> bool:
    return end + 1 < len(pieces) and pieces[end + 1][1] in ("*", "+", "?", "{")


def _bad(pattern: str, why: str) -> BadPattern:
    return BadPattern(f"{pattern[:200]!r} is no regular expression: {why}")


@lru_cache(maxsize=MAX_CACHED)
def _compiled(pattern: str) -> SchemaValidator:
    """Raises pydantic's SchemaError for an expression that Rust's engine does not take."""
    return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
