r"""Match text against regular expressions in linear time.

Models write the text, and it is matched on the event loop. Python's `re` backtracks, for some expressions 2^n times.
Rust's regex engine, which pydantic contains, does not, but lacks look-around and back-references.

So look-ahead directly after a leading `^` becomes an expression of its own, which the text has to match or must not
match: `^(?=.*\d)(?!0)\w+$` is matched exactly. Other look-around is dropped, and a back-reference stands for any text,
so the rest accepts all that the whole accepts.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pydantic_core import SchemaError, SchemaValidator, core_schema

MAX_CACHED = 64  # compiled expressions, each of up to 10 MiB
MAX_PATTERN: Final = 10_000  # characters
_PIECE: Final = re.compile(
    r"(?P<back>\\[1-9][0-9]*|\\k<[^>]*>|\(\?P=[^)]*\))|(?P<look>\(\?<?[=!])"
    r"|(?P<group>\((?:\?(?:P?<[^>]*>|[a-zA-Z-]*:)?)?)|(?P<close>\))"
    r"|(?P<set>\[(?:\\.|[^\]\\])*\])|(?P<escape>\\.)|(?P<other>.)",
    re.DOTALL,
)
_NAMED: Final = re.compile(r"\(\?P?<")
# In `[\w-.]` the hyphen stands for itself; Rust's engine wants a backslash there.
_HYPHEN: Final = re.compile(r"(\\[dDwWsS])-(?!\])")
_ANY_TEXT: Final = r"[\s\S]*"
# Escapes that Rust's engine reads differently from ECMAScript, which JSON Schema refers to.
_PLAIN: Final = {r"\<": "<", r"\>": ">", r"\0": r"\x00"}


class BadPattern(Exception):
    """A text is no regular expression in any dialect. The message is one line."""


@dataclass(frozen=True, slots=True)
class LinearPattern:
    """The matchable part of an expression. It accepts every text that the expression accepts."""

    body: str | None  # without look-around, names and back-references; None if nothing can be matched
    ahead: tuple[tuple[str, bool], ...] = ()  # expressions that a text has to match too (True) or must not match
    relaxed: str = ""  # what is not matched and why; empty if the match is exact


def matches(pattern: str, text: str) -> bool:
    """Return whether the matchable part matches anywhere in the text. Raises `BadPattern`."""
    read = read_pattern(pattern)
    parts = (*read.ahead, *([] if read.body is None else [(read.body, True)]))
    return all(_compiled(part).isinstance_python(text) == expected for part, expected in parts)


@lru_cache(maxsize=1024)
def read_pattern(pattern: str) -> LinearPattern:
    """Return the matchable part of an expression. Raises `BadPattern`."""
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


_Piece = tuple[str, str]  # kind (a group of `_PIECE`) and text


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
    body: list[str] = []
    ahead: list[tuple[str, bool]] = []
    dropped: dict[str, None] = {}
    has_choice, at = _has_choice(pieces, closings), 0
    while at < len(pieces):
        kind, text = pieces[at]
        if kind == "look":
            end = closings[at]
            inner = pieces[at + 1 : end]
            leads = body == ["^"] and "<" not in text and not has_choice and not _is_quantified(pieces, end)
            if leads and all(kind not in ("look", "back") for kind, _ in inner):
                ahead.append((f"^(?:{''.join(map(_written, inner))})", "=" in text))
            else:
                body.append("(?:)")
                dropped["look-behind" if "<" in text else "look-ahead that does not follow a leading ^"] = None
            at = end
        elif kind == "back":
            body.append(_ANY_TEXT)
            dropped["a back-reference"] = None
        else:
            body.append(_written(pieces[at]))
        at += 1
    why = f"{' and '.join(dropped)} cannot be matched in linear time" if dropped else ""
    return "".join(body), tuple(ahead), why


def _written(piece: _Piece) -> str:
    kind, text = piece
    if kind == "set":
        return _HYPHEN.sub(r"\1\\-", text)
    # Names of groups go, since only back-references need them.
    return "(" if kind == "group" and _NAMED.match(text) else _PLAIN.get(text, text)


def _has_choice(pieces: list[_Piece], closings: dict[int, int]) -> bool:
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
    return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
