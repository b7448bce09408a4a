"""Match text against regular expressions in time that is linear in the length of the text.

Models write the text, and it is matched on the event loop. Python's `re` backtracks, for some expressions 2^n times.
Rust's regex engine, which comes with pydantic, does not backtrack. Expressions that it does not support (look-around,
back-references) are refused.
"""

from collections.abc import Iterator
from functools import lru_cache

from pydantic_core import SchemaError, SchemaValidator, core_schema

MAX_CACHED = 64
"""How many compiled expressions are cached. One may take 10 MiB."""


class BadPattern(Exception):
    """An expression cannot be used. The message says why in one line."""


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


def check_pattern(pattern: str) -> None:
    """Raise `BadPattern` if the expression cannot be used."""
    _compiled(pattern)


def matches(pattern: str, text: str) -> bool:
    """Return whether the expression matches anywhere in the text. Raises `BadPattern` if it cannot be used."""
    return _compiled(pattern).isinstance_python(text)


@lru_cache(maxsize=MAX_CACHED)
def _compiled(pattern: str) -> SchemaValidator:
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError as error:
        reason = str(error).splitlines()[-1].strip().removeprefix("error: ").removeprefix("SchemaError: ")
        raise BadPattern(f"the pattern {pattern[:200]!r} cannot be used: {reason}") from error
