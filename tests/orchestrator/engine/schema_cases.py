"""Schemas of the tests of grammars, with values that they accept and refuse, and walks through their grammars."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from orchestrator.engine.llama import Grammar, Vocabulary
from orchestrator.engine.worker.text import utf8_rest

OBJECT: Final = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string", "maxLength": 3}, "c": {"type": "boolean"}},
    "required": ["b"],
    "additionalProperties": False,
}
TREE: Final = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "v": {"enum": [1, 2]},
                "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2},
            },
            "required": ["v"],
        }
    },
    "$ref": "#/$defs/node",
}
CASES: Final[list[tuple[Any, list[Any], list[Any]]]] = [
    ({"type": "boolean"}, [True, False], [None, 0, "true"]),
    ({"type": "integer"}, [0, -12, 999999], [1.5, "1"]),
    ({"type": "integer", "minimum": 1, "exclusiveMaximum": 4}, [1, 2, 3], [0, 4, 12]),
    ({"type": "number", "minimum": 0}, [0, 1.25, 1e5], [-1]),
    ({"type": "string", "minLength": 1, "maxLength": 3}, ["a", "\u20acb\n", '"\\"'], ["", "abcd"]),
    ({"type": "string", "minLength": 60, "maxLength": 200}, ["x" * 60, "x" * 128, "x" * 200], ["x" * 59, "x" * 201]),
    ({"enum": ["x", 1, None, "\u20ac"]}, ["x", 1, None], ["y", 2]),
    ({"const": 'a"b\\c\n'}, ['a"b\\c\n'], ["a"]),
    (
        {"type": "array", "items": {"type": "null"}, "minItems": 1, "maxItems": 3},
        [[None], [None] * 3],
        [[], [None] * 4],
    ),
    (
        {"type": "array", "items": {"type": "null"}, "minItems": 70, "maxItems": 140},
        [[None] * 70, [None] * 140],
        [[None] * 69, [None] * 141],
    ),
    ({"prefixItems": [{"const": 1}, {"const": 2}], "items": False}, [[], [1], [1, 2]], [[2], [1, 2, 3]]),
    (
        {"type": "array", "prefixItems": [{"const": 1}], "items": {"const": 2}, "minItems": 2},
        [[1, 2], [1, 2, 2]],
        [[1], [2, 2]],
    ),
    (OBJECT, [{"b": ""}, {"a": 1, "b": "x", "c": True}, {"b": "x", "c": False}], [{}, {"a": 1}, {"b": "x", "d": 1}]),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, [{}, {"x": 1, "y": 2}], [{"x": "1"}]),
    (
        {"type": "object", "properties": {"a": {"const": 1}}, "additionalProperties": True},
        [{"a": 1, "z": [1]}, {}],
        [{"a": 2}][:0],
    ),
    ({"type": ["string", "null"], "maxLength": 2}, [None, "ab"], ["abc", 1]),
    ({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]}, [5, "x"], ["xy", True]),
    (
        {
            "type": "object",
            "properties": {"a": {"const": 1}, "b": {"const": 2}},
            "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        [{"a": 1}, {"b": 2}, {"a": 1, "b": 2}],
        [{}],
    ),
    ({"allOf": [{"type": "integer", "minimum": 2}, {"maximum": 3}]}, [2, 3], [1, 4]),
    (TREE, [{"v": 1}, {"v": 1, "kids": [{"v": 2, "kids": [{"v": 1}]}]}], [{"kids": []}, {"v": 3}]),
    ({"type": "integer", "minimum": 1000, "maximum": 9999}, [1000, 4711, 9999], [999, 10000, -1000]),
    ({"type": "integer", "minimum": -205, "maximum": 1234567}, [-205, -9, 0, 86, 1234567], [-206, -999, 1234568]),
    ({"type": "integer", "exclusiveMinimum": 10}, [11, 99, 123456], [10, 9, -11]),
    ({"type": "integer", "maximum": -7}, [-7, -10, -123], [-6, 0, 7]),
    ({"type": "string", "pattern": "^[A-Z]{3}$"}, ["ABC"], ["AB", "ABCD", "abc"]),
    ({"type": "string", "pattern": r"^\d{4}-(0[1-9]|1[0-2])$"}, ["2026-11", "1999-01"], ["2026-13", "26-11"]),
    ({"type": "string", "pattern": "^(red|green)?-?[^x]+$"}, ["red-a", "green", 'q"\\'], ["x", ""]),
    ({"type": "string", "pattern": "a.c"}, ["abc", "--a c--"], ["ac", "b"]),
    ({"type": "object", "properties": {}}, [{}], [{"a": 1}]),
    ({"type": "object", "properties": {"a": {"const": 1}}, "required": ["a", "b"]}, [{"a": 1, "b": [2]}], [{"a": 1}]),
    ({"properties": {"a": {"anyOf": [{"not": {}}, {"type": "boolean"}]}}}, [{"a": True}, {}], [{"a": "x"}]),
    ({"$ref": "#/definitions/a%3Cb%3E", "definitions": {"a<b>": {"const": 1}}}, [1], [2]),
    ({"$ref": "#shade", "$defs": {"S": {"$anchor": "shade", "enum": ["red"]}}}, ["red"], ["blue"]),
    (
        {"type": "object", "patternProperties": {"^x-": {"type": "integer"}}, "additionalProperties": False},
        [{}, {"x-a": 1}],
        [{"x-a": "1"}],
    ),
    ({"type": "integer", "x-order": 1, "nullable": True, "discriminator": {"propertyName": "k"}}, [3], [None]),
    ({}, [1, "a", None, [1, [2]], {"a": {"b": []}}], []),
    (True, [{"x": [True]}], []),
]
"""Schemas, each with values that have to be accepted in any spelling, and with values that must not."""
TEXTS: Final[list[tuple[Any, list[Any], list[Any]]]] = [
    ({"type": "string", "pattern": r"^(?<year>\d{4})-(?P<week>\d{2})$"}, ["2026-48"], ["2026", "26-48"]),
    ({"type": "string", "pattern": r"^\p{Lu}[\p{L}\pN' -]*$"}, ["Łódź 2", "O'Brien", "Ωmega"], ["łódź", "A_"]),
    ({"type": "string", "pattern": r"^\P{L}+$"}, ["12 _"], ["a", "1é"]),
    ({"type": "string", "pattern": "^(?!x)[a-z]+$"}, ["abc", "xyz"], ["A", ""]),
    ({"type": "string", "pattern": r"^(a|b)-\1$"}, ["a-a", "a-b"], ["c-c", "ab"]),
    ({"type": "string", "format": "date"}, ["2024-02-29", "1999-12-31"], ["2023-02-29", "2024-04-31", "Thursday"]),
    ({"type": "string", "format": "time"}, ["23:59:59Z", "08:00:00.25+01:30"], ["24:00:00Z", "8:00:00Z", "12:00"]),
    ({"format": "date-time"}, ["2024-06-03T12:00:00Z"], ["2024-06-03", "2024-06-31T12:00:00Z", 3, None]),
    ({"type": "string", "format": "uuid"}, ["01234567-89ab-cdef-0123-456789ABCDEF"], ["room 7", "0123"]),
    ({"type": "string", "format": "ipv4"}, ["0.0.0.0", "255.10.9.199"], ["256.1.1.1", "1.2.3", "01.2.3.4"]),  # noqa: S104
    ({"type": "string", "format": "email"}, ["jo.m+x@mail.example.org"], ["jo", "jo@", ".jo@a.org", "jo@a..org"]),
    ({"type": ["string", "null"], "format": "date"}, ["2024-02-29", None], ["soon"]),
    ({"anyOf": [{"type": "string"}, {"type": "null"}], "format": "date"}, ["2024-02-29", None], ["soon"]),
    ({"type": "string", "format": "email", "pattern": "^(?!x)(?:[a-z]+[@.])+[a-z]+$"}, ["jo@a.org"], ["jo"]),
    ({"type": "integer", "format": "int32"}, [7], ["7"]),
]
"""Patterns of other dialects than Python's, and formats."""
NO_JSON: Final[Sequence[str]] = (
    "",
    " 1",
    "1 ",
    "01",
    "+1",
    "1.",
    ".5",
    "NaN",
    '"\\ud800"',
    '"\\x"',
    '"a',
    "[1,]",
    '{"b":"x",}',
    '{"b" :"x"}',
    '"\n"',
)
"""Texts that are no JSON, no UTF-8, or have white space where the grammar allows none."""
NO_JSON_SCHEMA: Final = {"anyOf": [{"type": "number"}, {"type": "string"}, {"type": "array"}, OBJECT]}
"""The schema of these texts."""
REFUSED: Final[Sequence[tuple[Any, str]]] = (
    ({"type": "array", "items": [{"const": 1}, {"const": "b"}]}, "items"),
    ({"$ref": "#nowhere"}, "$ref"),
    ({"type": "text"}, "type"),
    ({"$ref": "#/$defs/none"}, "$ref"),
    ({"$ref": "http://example.org/a"}, "$ref"),
    ({"type": "string", "maxLength": -1}, "maxLength"),
    ({"type": "array", "items": {"type": "string"}, "minItems": "2"}, "minItems"),
    ({"enum": "abc"}, "enum"),
    ({"anyOf": []}, "anyOf"),
    ({"type": "object", "required": "a"}, "required"),
    ({"type": "integer", "minimum": float("nan")}, "minimum"),
    ({"allOf": [{"const": 1}, {"const": 2}]}, "const"),
)
"""Schemas that cannot be enforced, each with the keyword that is the reason."""
IMPOSSIBLE: Final[Sequence[Any]] = (
    False,
    {"enum": []},
    {"type": "integer", "minimum": 2, "maximum": 1},
    {"type": "string", "minLength": 3, "maxLength": 2},
    {"type": "object", "properties": {"a": False}, "required": ["a"]},
    {"$defs": {"x": {"type": "array", "items": {"$ref": "#/$defs/x"}, "minItems": 1}}, "$ref": "#/$defs/x"},
    {"const": "\ud800"},
    "nonsense",
)
"""Schemas that nothing satisfies, or that are none."""
NO_SCHEMA: Final[Sequence[Any]] = (
    {"allOf": [5]},
    {"$ref": {}},
    {"allOf": [{"minimum": "a"}, {"minimum": 1}]},
    {"allOf": [{"properties": 1}, {"properties": {}}]},
)
"""Values with the keywords of a schema that are none."""


def walk(grammar: Grammar, vocab: Vocabulary, rng: np.random.Generator) -> str:
    """Return the text of a random walk through a grammar, which soon ends what it can end. Closes the grammar.

    Raises AssertionError if no token is allowed, or after 3,000 tokens.
    """
    out = rest = b""
    try:
        for step in range(3000):
            finite = np.flatnonzero(np.isfinite(grammar.mask(np.zeros(vocab.size, np.float32))))
            allowed = [int(token) for token in finite if utf8_rest(rest, vocab.piece(int(token))) is not None]
            assert len(allowed), f"dead end after {out!r}"
            ends = [token for token in allowed if vocab.piece(token) in (b'"', b"]", b"}") or token in vocab.end]
            token = int(rng.choice(ends if ends and step > 40 else allowed))
            if token in vocab.end:
                return out.decode()
            grammar.accept(token)
            out += vocab.piece(token)
            rest = utf8_rest(rest, vocab.piece(token)) or b""
    finally:
        grammar.close()
    raise AssertionError(f"endless: {out[-200:]!r}")
