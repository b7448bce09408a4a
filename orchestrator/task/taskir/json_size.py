"""Limit the size of a JSON text before it is parsed, and find or repair half surrogate pairs in it.

Python's JSON parsers hold the interpreter's lock: a text of a few megabytes with millions of values would stop the
whole process for seconds. What is here takes some milliseconds per megabyte.
"""

import re
from dataclasses import dataclass

MAX_VALUES = (1 << 20) + (1 << 16)
"""How many values a JSON text may have: entries of lists and objects. The tokens of the longest context are fewer."""
MAX_STRINGS = 1 << 18
"""How many of them may be text, keys included."""
MAX_KEYS = 1 << 17
"""How many entries its objects may have together."""
MAX_CONTAINERS = 1 << 16
"""How many lists and objects it may have. They take longer to parse and to validate than other values."""
MAX_LEVELS = 128
"""How deep it may be nested."""

_HEX = b"[0-9a-fA-F]"
_HIGH = rb"\\u[dD][89abAB]" + 2 * _HEX
_LOW = rb"\\u[dD][c-fC-F]" + 2 * _HEX
_HALF = re.compile(_HIGH + b"(?!" + _LOW + b")|(?<!" + _HIGH + b")" + _LOW)
_PAIR = len(rb"\ud83d\ude00")
_PART = 1 << 18
_BRACKET = re.compile(rb"[\[\]{}]")
_BACKSLASH, _STAND_IN = b"\\\\", b"\0\0"
"""An escaped backslash, and what stands for it while escapes are searched: JSON has no NUL, which must be escaped."""


@dataclass(frozen=True, slots=True)
class JsonExcess:
    """What a JSON text has too much of."""

    what: str
    accepted: str
    is_depth: bool = False
    """Whether it is nested too deep, and may be small."""

    def __str__(self) -> str:
        return f"{self.what}; accepted: {self.accepted}"


def json_excess(text: bytes) -> JsonExcess | None:
    """Return which limit a JSON text exceeds, or None. Whether it is JSON at all is not checked."""
    if _containers(text) <= MAX_LEVELS and text.count(b",") <= MAX_KEYS:
        return None  # also if strings hold some of them
    plain = text.replace(_BACKSLASH, b"").replace(b'\\"', b"")
    if (strings := plain.count(b'"') // 2) > MAX_STRINGS:
        return JsonExcess(f"the JSON has {strings} texts and keys", f"at most {MAX_STRINGS}")
    bare = b"".join(plain.split(b'"')[::2])
    containers = _containers(bare)
    for count, most, what in (
        (containers, MAX_CONTAINERS, "lists and objects"),
        (bare.count(b":"), MAX_KEYS, "keys of objects"),
        (bare.count(b",") + containers, MAX_VALUES, "values"),
    ):
        if count > most:
            return JsonExcess(f"the JSON has {count} {what}", f"at most {most}")
    if _is_deep(bare):
        return JsonExcess(f"the JSON is nested more than {MAX_LEVELS} levels deep", f"at most {MAX_LEVELS}", True)
    return None


def has_half_surrogate(text: bytes) -> bool:
    r"""Return whether a JSON text holds half of a surrogate pair, such as `\ud83d` alone, which is no character."""
    if not _may_have_surrogates(text):
        return False
    text = text.replace(_BACKSLASH, _STAND_IN)
    # One search over all of it would hold the interpreter's lock. Each part is searched with the beginning of the next.
    for start in range(0, len(text), _PART):
        found = _HALF.search(text, start, start + _PART + _PAIR)
        if found is not None and found.start() < start + _PART:
            return True
    return False


def with_whole_characters(text: bytes) -> bytes:
    """Return a JSON text with U+FFFD in the place of each half of a surrogate pair and of bytes that are not UTF-8."""
    if _may_have_surrogates(text) and b"\0" not in text:
        escaped = _HALF.sub(rb"\\ufffd", text.replace(_BACKSLASH, _STAND_IN))
        text = escaped.replace(_STAND_IN, _BACKSLASH)
    return text if text.isascii() else text.decode(errors="replace").encode()


def _may_have_surrogates(text: bytes) -> bool:
    return b"\\ud" in text or b"\\uD" in text


def _containers(text: bytes) -> int:
    return text.count(b"[") + text.count(b"{")


def _is_deep(bare: bytes) -> bool:
    """Return whether a JSON text without its strings is nested more than `MAX_LEVELS` deep."""
    depth = 0
    for bracket in _BRACKET.finditer(bare):
        depth += 1 if bracket[0] in b"[{" else -1
        if depth > MAX_LEVELS:
            return True
        if depth < 0:  # it is no JSON, which its parser finds out
            return False
    return False
