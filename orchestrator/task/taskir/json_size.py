"""Limit the size of a JSON text before it is parsed, and find or repair half surrogate pairs in it.

Python's JSON parsers hold the interpreter's lock: a few megabytes with millions of values would stop the process for
seconds. These checks take some milliseconds per megabyte.
"""

import re
from dataclasses import dataclass

MAX_VALUES = (1 << 20) + (1 << 16)  # entries of lists and objects; the longest context has fewer tokens
MAX_STRINGS = 1 << 18  # keys included
MAX_KEYS = 1 << 17  # over all objects
MAX_CONTAINERS = 1 << 16  # lists and objects, which take longer to parse and validate than other values
MAX_LEVELS = 128  # of nesting

_HEX = b"[0-9a-fA-F]"
_HIGH = rb"\\u[dD][89abAB]" + 2 * _HEX
_LOW = rb"\\u[dD][c-fC-F]" + 2 * _HEX
_HALF = re.compile(_HIGH + b"(?!" + _LOW + b")|(?<!" + _HIGH + b")" + _LOW)
_PAIR = len(rb"\ud83d\ude00")
_PART = 1 << 18
_BRACKET = re.compile(rb"[\[\]{}]")
# An escaped backslash, and its replacement during a search: JSON has no bare NUL.
_BACKSLASH, _STAND_IN = b"\\\\", b"\0\0"


@dataclass(frozen=True, slots=True)
class JsonExcess:
    what: str
    accepted: str
    is_depth: bool = False  # nested too deep, so it may be small

    def __str__(self) -> str:
        return f"{self.what}; accepted: {self.accepted}"


def json_excess(text: bytes) -> JsonExcess | None:
    """Return the limit that a JSON text exceeds, or None. Whether it is JSON at all is not checked."""
    if _containers(text) <= MAX_LEVELS and text.count(b",") <= MAX_KEYS:
        return None  # a cheap upper bound: strings may hold some of them
    plain = text.replace(_BACKSLASH, b"").replace(b'\\"', b"")
    if (strings := plain.count(b'"') // 2) > MAX_STRINGS:
        return JsonExcess(f"the JSON has {strings} texts and keys", f"at most {MAX_STRINGS}")
    bare = b"".join(plain.split(b'"')[::2])
    containers = _containers(bare)
    for count, most, noun in (
        (containers, MAX_CONTAINERS, "lists and objects"),
        (bare.count(b":"), MAX_KEYS, "keys of objects"),
        (bare.count(b",") + containers, MAX_VALUES, "values"),
    ):
        if count > most:
            return JsonExcess(f"the JSON has {count} {noun}", f"at most {most}")
    if _is_deep(bare):
        return JsonExcess(f"the JSON is nested more than {MAX_LEVELS} levels deep", f"at most {MAX_LEVELS}", True)
    return None


def has_half_surrogate(text: bytes) -> bool:
    r"""Return whether a JSON text holds half of a surrogate pair, such as `\ud83d` alone."""
    if not _may_have_surrogates(text):
        return False
    text = text.replace(_BACKSLASH, _STAND_IN)
    # In parts, as one search would hold the interpreter's lock; each part overlaps the next one.
    for start in range(0, len(text), _PART):
        match = _HALF.search(text, start, start + _PART + _PAIR)
        if match is not None and match.start() < start + _PART:
            return True
    return False


def with_whole_characters(text: bytes) -> bytes:
    """Return a JSON text with U+FFFD instead of half surrogate pairs and of bytes that are not UTF-8."""
    if _may_have_surrogates(text) and b"\0" not in text:
        escaped = _HALF.sub(rb"\\ufffd", text.replace(_BACKSLASH, _STAND_IN))
        text = escaped.replace(_STAND_IN, _BACKSLASH)
    return text if text.isascii() else text.decode(errors="replace").encode()


def _may_have_surrogates(text: bytes) -> bool:
    return b"\\ud" in text or b"\\uD" in text


def _containers(text: bytes) -> int:
    return text.count(b"[") + text.count(b"{")


def _is_deep(bare: bytes) -> bool:
    depth = 0
    for bracket in _BRACKET.finditer(bare):
        depth += 1 if bracket[0] in b"[{" else -1
        if depth > MAX_LEVELS:
            return True
        if depth < 0:  # not JSON, which the parser reports
            return False
    return False
