"""Read JSON strictly, and write it compactly.

Input that `json.loads` wrongly accepts, or fails on, becomes a problem with a JSON pointer.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.errors import Problem
from orchestrator.task.taskir.fields import MAX_BYTES, MAX_DEPTH, MAX_DIGITS, MAX_STEPS, MAX_TEXT
from orchestrator.task.taskir.problems import MAX_PROBLEMS, format_value, pointer

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{},]', re.DOTALL)
_PLAIN = frozenset((bool, int, type(None)))

# A value's container and its key there. A linked list, so each value adds only one tuple.
Path = tuple["Path", str | int] | None

_Container = tuple[dict[str, object] | list[object], Path, int]


@dataclass(frozen=True, slots=True)
class _Refused:
    # Stands for something that is not JSON in the parsed document, until its JSON pointer is known.
    what: str
    accepted: str


def compact_json(value: object) -> str:
    """Return JSON without white space between its parts, as the embedded models write and read it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def read_json(raw: str | bytes) -> tuple[object, list[Problem]]:
    """Return the parsed document and the problems with it. A document with problems must not be used."""
    size = len(raw) if isinstance(raw, bytes) or raw.isascii() else len(raw.encode(errors="surrogatepass"))
    if size > MAX_BYTES:
        return None, [Problem("/", f"the document has {size} bytes", f"up to {MAX_BYTES} bytes")]
    try:
        text = raw.decode() if isinstance(raw, bytes) else raw
    except UnicodeDecodeError as error:
        return None, [Problem(f"byte {error.start}", "the document is not UTF-8", "JSON in UTF-8")]
    try:
        document = _decode(text.removeprefix("\ufeff"))
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        return None, [Problem(where, f"the document is not JSON: {error.msg}", "JSON in UTF-8")]
    except RecursionError:
        return None, [_too_deep(_deep_path(text))]
    return document, inspect(document)


def _decode(text: str) -> object:
    return json.loads(
        text, object_pairs_hook=_object, parse_constant=_constant, parse_int=_whole, parse_float=_fraction
    )


def _object(pairs: list[tuple[str, object]]) -> object:
    entries = dict(pairs)
    if len(entries) == len(pairs):
        return entries
    double = Counter(key for key, _ in pairs).most_common(1)[0][0]
    return _Refused(f"the key {format_value(double)} is there twice", "each key once in an object")


def _constant(name: str) -> object:
    return _Refused(f"{name} is not JSON", "a finite number")


def _whole(digits: str) -> object:
    if len(digits) <= MAX_DIGITS:
        return int(digits)
    return _Refused(f"a number of {len(digits)} digits", f"numbers of up to {MAX_DIGITS} digits")


def _fraction(digits: str) -> object:
    value = float(digits)
    return (
        value
        if math.isfinite(value)
        else _Refused(f"the number {format_value(digits)} is too large", "a finite number")
    )


def inspect(document: object) -> list[Problem]:
    """Return the problems that parsed JSON has under any schema: depth, sizes, invalid Unicode, types that are not
    JSON.
    """
    if not isinstance(document, dict | list):
        flaw = _flaw(document)
        return [Problem("/", *flaw)] if flaw else []
    problems: list[Problem] = []
    # No recursion: neither depth nor a cycle can exhaust Python's stack.
    stack: list[_Container] = [(document, None, 1)]
    weight = 0
    while stack and len(problems) <= MAX_PROBLEMS:
        container, path, depth = stack.pop()
        if depth > MAX_DEPTH:
            problems.append(_too_deep(_keys(path)))
            continue
        if len(container) > MAX_STEPS or weight > MAX_BYTES:
            limit = f"up to {MAX_STEPS} values in one place and {MAX_BYTES} bytes in all"
            return [*problems, Problem(pointer(_keys(path)), "too many values", limit)]
        if isinstance(container, dict):
            problems.extend(Problem(pointer(_keys(path)), *flaw) for key in container if (flaw := _key_flaw(key)))
            weight += _check_leaves(container.items(), path, depth, stack, problems)
        else:
            weight += _check_leaves(enumerate(container), path, depth, stack, problems)
    return problems


def _check_leaves(
    pairs: Iterable[tuple[str | int, object]], path: Path, depth: int, stack: list[_Container], problems: list[Problem]
) -> int:
    weight = 0  # lower bound of the size in JSON (bytes)
    for key, value in pairs:
        weight += 1
        kind = type(value)
        if kind in _PLAIN:
            continue
        if isinstance(value, str):
            weight += len(value)
            if value.isascii() and len(value) <= MAX_TEXT:
                continue
        elif isinstance(value, dict | list):
            stack.append((value, (path, key), depth + 1))
            continue
        if flaw := _flaw(value):
            problems.append(Problem(pointer(_keys((path, key))), *flaw))
    return weight


def _flaw(value: object) -> tuple[str, str] | None:
    if isinstance(value, _Refused):
        return value.what, value.accepted
    if isinstance(value, str):
        if len(value) > MAX_TEXT:
            return f"a text of {len(value)} characters", f"up to {MAX_TEXT} characters"
        return (
            None if is_unicode(value) else (f"the text {format_value(value)} has half a surrogate pair", "Unicode text")
        )
    if isinstance(value, float):
        return None if math.isfinite(value) else (f"{value} is not JSON", "a finite number")
    if value is None or isinstance(value, bool | int):
        return None
    return f"a Python {type(value).__name__} is not JSON", "an object, a list, text, a number, true, false or null"


def _key_flaw(key: object) -> tuple[str, str] | None:
    if not isinstance(key, str):
        return f"the key {format_value(key)} is not text", "keys that are text"
    return None if key.isascii() and len(key) <= MAX_TEXT else _flaw(key)


def is_unicode(value: str) -> bool:
    """Return whether a text can be encoded as UTF-8: half a surrogate pair cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _keys(path: Path) -> list[str | int]:
    keys: list[str | int] = []
    while path is not None:
        path, key = path
        keys.append(key)
    return keys[::-1]


def _too_deep(path: list[str | int]) -> Problem:
    return Problem(pointer(path), "nested too deep", f"up to {MAX_DEPTH} levels")


def _deep_path(text: str) -> list[str | int]:
    # Path of the first value beyond the depth limit; the JSON parser gave up on this text.
    path: list[str | int | None] = []  # None in an object before its next key
    for match in _TOKEN.finditer(text):
        mark = match[0]
        if mark in ("[", "{"):
            path.append(0 if mark == "[" else None)
        elif mark in ("]", "}"):
            path[-1:] = []
        elif not path:
            continue
        elif mark == ",":
            path[-1] = path[-1] + 1 if isinstance(path[-1], int) else None
        elif path[-1] is None:
            path[-1] = json.loads(mark, strict=False)
        if len(path) > MAX_DEPTH:
            break
    return [key for key in path[:-1] if key is not None]
