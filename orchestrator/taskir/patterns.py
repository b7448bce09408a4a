"""Match text against regular expressions in time that grows with the text's length and no faster.

The text is a model's, and it is matched on the event loop. Python's own engine tries again and again where a match
fails, for some expressions 2^n times. Rust's, which pydantic brings, never does; what cannot be had that way
(look-around, back-references) is refused.
"""

from collections.abc import Iterator
from functools import lru_cache

from pydantic_core import SchemaError, SchemaValidator, core_schema

MOST_KEPT = 64
"""Expressions that stay compiled. One may take 10 MiB."""


class BadPattern(Exception):
    """An expression that nothing is matched against. It says why in one line."""


def patterns_in(schema: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the patterns of a JSON Schema, each with where it is: `path` leads to the schema."""
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


def check_pattern(pattern: str) -> None:
    """Raises `BadPattern`."""
    _compiled(pattern)


def matches(pattern: str, text: str) -> bool:
    """Return whether an expression that has been checked matches anywhere in the text."""
    return _compiled(pattern).isinstance_python(text)


@lru_cache(maxsize=MOST_KEPT)
def _compiled(pattern: str) -> SchemaValidator:
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError as error:
        reason = str(error).splitlines()[-1].strip().removeprefix("error: ").removeprefix("SchemaError: ")
        raise BadPattern(f"the pattern {pattern[:200]!r} cannot be used: {reason}") from error
