"""Write plain data as text, and compare it with what a test expects.

The process that runs the code writes values, and the one that judges reads them. What it reads has only Python's own
types, so no method of the code under test takes part in a comparison.
"""

import ast
import operator
import secrets
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any

LIMIT = 100_000  # characters of a value's text

_RANDOM = secrets.SystemRandom()
_DEPTH = 50
_WIDE = 10_000
_BASES = (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, NoneType)

COMPARISONS: Mapping[str, Callable[[Any, Any], object]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda left, right: operator.contains(right, left),
    "not in": lambda left, right: not operator.contains(right, left),
}


class NotPlain(Exception):
    """A value is not plain data, or is too large."""


@dataclass(frozen=True, slots=True)
class Approximate:
    """What `pytest.approx(expected, rel, abs)` means, for numbers and lists of numbers."""

    expected: object
    relative: float | None = None
    absolute: float | None = None

    def matches(self, actual: object) -> bool:
        return self._close(actual, self.expected)

    def _close(self, actual: Any, expected: Any) -> bool:
        if isinstance(expected, list | tuple):
            same = type(actual) is type(expected) and len(actual) == len(expected)
            return same and all(map(self._close, actual, expected))
        if actual == expected:
            return True
        if not isinstance(actual, int | float) or not isinstance(expected, int | float):
            return False
        if isinstance(actual, bool) or isinstance(expected, bool) or expected in (float("inf"), -float("inf")):
            return False
        return abs(actual - expected) <= self._tolerance(expected)

    def _tolerance(self, expected: float) -> float:
        # The defaults of pytest.approx.
        absolute = 1e-12 if self.absolute is None else self.absolute
        if self.relative is None and self.absolute is not None:
            return absolute
        return max(absolute, abs(expected) * (1e-6 if self.relative is None else self.relative))

    def __repr__(self) -> str:
        return f"approx({self.expected!r})"


def encode(value: object) -> str | None:
    """Return plain data as a Python literal; None if it is something else or too large."""
    try:
        text = _encode(value, 0)
    except (NotPlain, RecursionError):
        return None
    return text if len(text) <= LIMIT else None


def decode(text: str) -> object:
    """Return the value that `encode` wrote. Raises ValueError for any other text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"{text[:80]!r} is no value") from error


def holds(left: object, comparison: str, right: object) -> bool:
    if isinstance(right, Approximate):
        return right.matches(left) is (comparison == "==")
    if comparison in ("is", "is not"):
        return (type(left) is type(right) and left == right) is (comparison == "is")
    try:
        return bool(COMPARISONS[comparison](left, right))
    except (TypeError, RecursionError):
        return False


def decoys(value: Any) -> list[Any]:
    """Return random values of the same kind that differ from `value`: an honest result equals none of them."""
    match value:
        case Approximate(expected=expected):
            return [Approximate(decoy) for decoy in decoys(expected)]
        case bool() | None:
            return [decoy for decoy in (True, False, None) if decoy is not value]
        case int() | float() | complex():
            near = (value + step for step in _RANDOM.sample([*range(-9, 0), *range(1, 10)], 3))
            return [decoy for decoy in (*near, 2 * value, -value) if decoy != value]
        case str():
            return [value + _letter(), _letter() + value[1:] + _letter(), *([value[:-1]] if value else [])]
        case bytes():
            return [value + b"a", value[:-1] if value else b"b"]
        case list() | tuple():
            return [*_other_items(value), type(value)([*value, 0])]
        case dict():
            return [{**value, "another": 0}, {key: (item,) for key, item in value.items()} or {0: 0}]
        case _:
            return ["another", -1]


def _letter() -> str:
    return _RANDOM.choice(string.ascii_letters)


def _other_items(items: Any) -> list[Any]:
    if not items:
        return [type(items)((None,))]
    return [type(items)([*items[:-1], decoys(items[-1])[0]]), type(items)(items[1:])]


def _encode(value: Any, depth: int) -> str:
    if depth > _DEPTH:
        raise NotPlain
    base = _base(type(value))
    # Methods of the plain type itself, which a subclass cannot replace.
    match base.__name__:
        case "NoneType" | "bool":
            return repr(value)
        case "int":
            bits = int.bit_length(value)
            return int.__format__(value, "#x" if bits > _WIDE else "d")
        case "float" | "complex":
            return _number(base.__repr__(value))
        case "str" | "bytes":
            if base.__len__(value) > LIMIT:
                raise NotPlain
            return str(base.__repr__(value))
        case "dict":
            pairs = dict.items(value)
            return _joined(
                "{", [f"{_encode(key, depth + 1)}: {_encode(item, depth + 1)}" for key, item in _few(pairs)], "}"
            )
        case "set" | "frozenset":
            items = [_encode(item, depth + 1) for item in _few(base.__iter__(value))]
            return _joined("{", sorted(items), "}") if items else "set()"
        case "list":
            return _joined("[", [_encode(item, depth + 1) for item in _few(list.__iter__(value))], "]")
        case _:
            return _joined("(", [f"{_encode(item, depth + 1)}," for item in _few(tuple.__iter__(value))], ")")


def _base(kind: type) -> Any:
    if kind in _BASES:
        return kind
    for base in _BASES:
        # A subclass counts as its plain type unless it compares in its own way.
        if base in type.mro(kind) and kind.__eq__ is base.__eq__:
            return base
    raise NotPlain


def _number(text: str) -> str:
    if "nan" in text or ("inf" in text and "j" in text):
        raise NotPlain
    # The literal 1e999 reads as infinity.
    return text.replace("inf", "1e999")


def _few(items: Iterable[Any]) -> list[Any]:
    elements = []
    for item in items:
        elements.append(item)
        if len(elements) > LIMIT // 2:
            raise NotPlain
    return elements


def _joined(opening: str, parts: list[str], closing: str) -> str:
    separator = "" if opening == "(" else ", "
    return f"{opening}{separator.join(parts)}{closing}"
