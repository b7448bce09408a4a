"""Turn a JSON Schema into a GBNF grammar all of whose texts have a bounded length.

Strings, arrays, numbers, white space and recursion are bounded even where the schema does not bound them, so that a
generation under the grammar ends by itself. The grammar accepts only a subset of what the schema means: properties
come in the schema's order, unnamed properties only where `additionalProperties` says so, and recursive references
nest at most `MAX_RECURSION` deep. Bounds of numbers are enforced where few numbers lie between them, and a `type`
beside `enum` or `const` is ignored. Keywords that a grammar cannot express (CHECKED_AFTERWARDS) are left to a
validator, which has to check the result in any case. Every other keyword that is not known is refused by name.
"""

import functools
import json
from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.engine.client.schema import (
    ANNOTATIONS,
    Schema,
    bounds_of,
    count_of,
    is_excluded,
    mapping_of,
    merge,
    names_of,
    schemas_of,
    without,
)
from orchestrator.engine.errors import BadGrammar

MAX_STRING = 8192
"""Characters of a string without `maxLength`."""
MAX_ITEMS = 256
"""Items of an array without `maxItems`."""
MAX_PROPERTIES = 64
"""Properties of an object that its schema does not name."""
MAX_RECURSION = 4
"""How often a reference may be followed inside itself."""
MAX_DEPTH = 64
"""How deep schemas may be nested."""
MAX_RULES = 20_000
"""Rules of one grammar."""
ANY_DEPTH = 3
"""How deep a value of any type may be nested."""
_BLOCK = 64

CHECKED_AFTERWARDS = frozenset(
    "pattern multipleOf uniqueItems minProperties maxProperties contains minContains maxContains propertyNames "
    "dependentRequired not".split()
)
ENFORCED = frozenset(
    "type enum const properties required additionalProperties items prefixItems minItems maxItems minLength maxLength "
    "minimum maximum exclusiveMinimum exclusiveMaximum anyOf oneOf allOf $ref".split()
)
_TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
_HINTS = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("minLength", "maxLength", "pattern"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}

_TERMINALS = {
    "ws": r'| " " | "\n" [ \t]{0,20}',
    "hex": "[0-9a-fA-F]",
    # No lone surrogates: JSON allows them, UTF-8 does not.
    "escape": r'["\\/bfnrt] | "u" ([0-9a-cA-CefEF] hex | [dD] [0-7]) hex hex',
    "char": r'[^"\\\x00-\x1F\x7F] | "\\" escape',
    "natural": '"0" | [1-9] [0-9]{0,14}',
    "integer": '"-"? natural',
    "number": 'integer ("." [0-9]{1,15})? ([eE] [-+]? [0-9]{1,2})?',
    "positive": 'natural ("." [0-9]{1,15})? ([eE] [-+]? [0-9]{1,2})?',
    "boolean": '"true" | "false"',
    "null": '"null"',
}
_NEEDS = {
    "escape": ("hex",),
    "char": ("escape",),
    "integer": ("natural",),
    "number": ("integer",),
    "positive": ("natural",),
}


class _Impossible(Exception):
    """No value satisfies this part of the schema."""


def schema_grammar(schema: Schema) -> str:
    """Return the GBNF grammar of a JSON Schema, with `root` as its start. Raises BadGrammar naming the keyword."""
    try:
        text = json.dumps(schema)
    except RecursionError:
        raise BadGrammar("the schema is nested too deeply") from None
    return _grammar(text)


@functools.lru_cache(maxsize=256)
def _grammar(text: str) -> str:
    """Return the grammar of a schema in JSON. It is cached, since steps use the same few schemas again and again."""
    try:
        schema: Schema = json.loads(text)
        writer = _Writer(schema)
        root = writer.value(schema, 0, ())
    except _Impossible:
        raise BadGrammar("no JSON value satisfies the schema") from None
    except RecursionError:
        raise BadGrammar("the schema is nested too deeply") from None
    except (AttributeError, TypeError) as error:
        raise BadGrammar(f"not a JSON Schema: {error}") from None
    lines = [f"root ::= {root}", *(f"{name} ::= {body}" for name, body in writer.rules.items())]
    text = "\n".join(lines) + "\n"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadGrammar(f"the schema holds text that is not valid Unicode: {error}") from error
    return text


def literal(text: str) -> str:
    """Return a GBNF literal that matches exactly this text."""
    escaped = "".join({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(c, c) for c in text)
    return f'"{escaped}"'


def _within(refs: tuple[str, ...], *names: str) -> tuple[str, ...]:
    """Return the references that were followed to get to a place, `names` included. Raises _Impossible where a
    reference was followed too often.

    They are sorted: only how often each was followed matters, and the orders are too many to be cached one by one.
    """
    if any(refs.count(name) > MAX_RECURSION for name in names):
        raise _Impossible
    return tuple(sorted((*refs, *names)))


class _Writer:
    """Collects the rules of one grammar. Its methods return the name of a rule, or an expression of one symbol."""

    def __init__(self, root: Schema) -> None:
        self.rules: dict[str, str] = {}
        self._root = root
        self._known: dict[object, str] = {}

    def value(self, schema: Schema, depth: int, refs: tuple[str, ...]) -> str:
        """Return the symbol of a value that satisfies the schema. Raises _Impossible, BadGrammar."""
        if depth > MAX_DEPTH:
            raise BadGrammar(f"the schema is nested more than {MAX_DEPTH} deep")
        if schema is True or schema == {}:
            return self._any(ANY_DEPTH)
        if schema is False:
            raise _Impossible
        if not isinstance(schema, Mapping):
            raise BadGrammar(f"a schema must be an object or a boolean, not {schema!r:.80}")
        self._refuse_unknown(schema)
        if "$ref" in schema:
            return self._reference(schema, depth, refs)
        for keyword in ("allOf", "anyOf", "oneOf"):
            if keyword in schema:
                return self._combined(keyword, schema, depth, refs)
        if "const" in schema:
            return self._rule(_json_literal(schema["const"]))
        if "enum" in schema:
            return self._enum(schema["enum"])
        return self._typed(schema, depth, refs)

    def _combined(self, keyword: str, schema: Mapping[str, Any], depth: int, refs: tuple[str, ...]) -> str:
        rest: Schema = without(schema, keyword)
        parts = schemas_of(schema, keyword)
        if keyword != "allOf":
            return self._one_of((merge(rest, part) for part in parts), depth + 1, refs)
        resolved = [self._resolved(part) for part in parts]
        inside = _within(refs, *(name for _, names in resolved for name in names))
        key = (keyword, inside, json.dumps(schema, sort_keys=True, default=str))
        if key not in self._known:
            self._known[key] = self.value(
                functools.reduce(merge, (part for part, _ in resolved), rest), depth + 1, inside
            )
        return self._known[key]

    def _typed(self, schema: Mapping[str, Any], depth: int, refs: tuple[str, ...]) -> str:
        kinds = schema.get("type") or [kind for kind, hints in _HINTS.items() if any(h in schema for h in hints)]
        if not kinds:
            return self._any(ANY_DEPTH)
        if not isinstance(kinds, str):
            if not isinstance(kinds, list):
                raise BadGrammar(f"type: {kinds!r:.80} is no type", "type")
            return self._one_of(({**schema, "type": kind} for kind in kinds), depth + 1, refs)
        match kinds:
            case "object":
                return self._object(schema, depth, refs)
            case "array":
                return self._array(schema, depth, refs)
            case "string":
                return self._string(schema)
            case "integer" | "number":
                return self._number(kinds, schema)
            case "boolean" | "null":
                return self._terminal(kinds)
        raise BadGrammar(f"type: {kinds!r:.80}; accepted: {', '.join(_TYPES)}", "type")

    # Choices and references

    def _one_of(self, choices: Iterable[Schema], depth: int, refs: tuple[str, ...]) -> str:
        symbols = []
        for choice in choices:
            try:
                symbols.append(self.value(choice, depth, refs))
            except _Impossible:
                continue
        if not symbols:
            raise _Impossible
        return self._rule(" | ".join(dict.fromkeys(symbols)))

    def _reference(self, schema: Mapping[str, Any], depth: int, refs: tuple[str, ...]) -> str:
        name = schema["$ref"]
        rest = without(schema, "$ref")
        inside = _within(refs, name)
        key = ("$ref", inside, json.dumps(rest, sort_keys=True, default=str))
        if key not in self._known:
            target = self._target(name)
            merged = merge(rest, target) if isinstance(target, Mapping) else target
            self._known[key] = self.value(merged, depth + 1, inside)
        return self._known[key]

    def _resolved(self, schema: Schema) -> tuple[Schema, list[str]]:
        """Follow references to a schema without one, which can be merged; return them too. Raises BadGrammar."""
        names: list[str] = []
        for _ in range(MAX_DEPTH):
            if not isinstance(schema, Mapping) or "$ref" not in schema:
                return schema, names
            names.append(schema["$ref"])
            schema = merge(without(schema, "$ref"), self._target(schema["$ref"]))
        raise BadGrammar("$ref: a reference to itself", "$ref")

    def _target(self, name: object) -> Schema:
        if not isinstance(name, str) or not name.startswith("#"):
            raise BadGrammar(f"$ref: {name!r:.80}; accepted: references into this schema, #/…", "$ref")
        node: Any = self._root
        for part in name[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(node, list) and key.isdigit() and int(key) < len(node):
                node = node[int(key)]
            elif isinstance(node, Mapping) and key in node:
                node = node[key]
            else:
                raise BadGrammar(f"$ref: nothing is at {name}", "$ref")
        if not isinstance(node, Mapping | bool):
            raise BadGrammar(f"$ref: {name} is no schema", "$ref")
        return node

    # Types

    def _object(self, schema: Mapping[str, Any], depth: int, refs: tuple[str, ...]) -> str:
        properties = mapping_of(schema, "properties")
        required = names_of(schema, "required")
        extra: Schema = schema.get("additionalProperties", not properties)
        pairs: list[tuple[str, bool]] = []
        for name, part in {**properties, **{n: extra for n in required if n not in properties}}.items():
            try:
                symbol = self.value(part, depth + 1, refs)
            except _Impossible:
                if name in required:
                    raise
                continue
            pairs.append((f'{_json_literal(name)} ":" {self._terminal("ws")} {symbol}', name in required))
        return self._rule(f'"{{" {self._members(pairs, self._extra_pair(extra, depth, refs))} "}}"')

    def _extra_pair(self, extra: Schema, depth: int, refs: tuple[str, ...]) -> str | None:
        """Return a rule for a property that the schema does not name, or None where there may be none."""
        try:
            return self._pair_of_any_name(self.value(extra, depth + 1, refs))
        except _Impossible:
            return None

    def _members(self, pairs: list[tuple[str, bool]], extra: str | None) -> str:
        """Return a rule for the members of an object in order.

        It is built from the end, so that its size is linear in the number of members.
        """
        ws = self._terminal("ws")
        after = self._rule(f'("," {ws} {extra}){{0,{MAX_PROPERTIES - 1}}} {ws}') if extra else ws
        first = self._rule(f"{ws} ({extra} {after})?") if extra else self._rule(ws)
        for pair, required in reversed(pairs):
            kv = self._rule(pair)
            present = f"{ws} {kv} {after}"
            first = self._rule(present if required else f"{present} | {first}")
            after = self._rule(f'"," {ws} {kv} {after}' if required else f'"," {ws} {kv} {after} | {after}')
        return first

    def _array(self, schema: Mapping[str, Any], depth: int, refs: tuple[str, ...]) -> str:
        firsts = [self.value(part, depth + 1, refs) for part in schemas_of(schema, "prefixItems", empty=True)]
        low = count_of(schema, "minItems", 0)
        high = count_of(schema, "maxItems", max(low, len(firsts), MAX_ITEMS))
        if high < low:
            raise _Impossible
        try:
            item = self.value(schema.get("items", True), depth + 1, refs) if high > len(firsts) else None
        except _Impossible:
            item, high = None, len(firsts)
        if high < low:
            raise _Impossible
        ws = self._terminal("ws")
        tail = self._rule(f'"," {ws} {item}') if item else None
        body = self._items(firsts[:high], item, tail, low, high)
        return self._rule(f'"[" {ws} {body} {ws} "]"' if body else f'"[" {ws} "]"')

    def _items(self, firsts: list[str], item: str | None, tail: str | None, low: int, high: int) -> str:
        """Return an expression for `low` to `high` items: `firsts` at the beginning, then `item`.

        `tail` is `item` after a comma.
        """
        ws = self._terminal("ws")
        first, *more = [*firsts, *([item] if item and not firsts else [])] or [""]
        if not first:
            return ""
        count = high - max(len(firsts), 1)
        rest = ""
        if tail and count > 0:
            rest = self._repeat(tail, max(0, low - max(len(firsts), 1)), count)
        for position, first_item in reversed(list(enumerate(more, start=2))):
            rest = f'"," {ws} {first_item} {rest}' if position <= low else f'("," {ws} {first_item} {rest})?'
        return f"{first} {rest}" if low >= 1 else f"({first} {rest})?"

    def _string(self, schema: Mapping[str, Any]) -> str:
        low = count_of(schema, "minLength", 0)
        high = count_of(schema, "maxLength", max(low, MAX_STRING))
        if high < low:
            raise _Impossible
        body = self._repeat(self._terminal("char"), low, min(high, max(low, MAX_STRING)))
        return self._rule(f'"\\"" {body} "\\""')

    def _number(self, kind: str, schema: Mapping[str, Any]) -> str:
        low, high = bounds_of(schema)
        if low is not None and high is not None and low > high:
            raise _Impossible
        if kind == "integer" and low is not None and high is not None and high - low <= MAX_ITEMS:
            first, last = -int(-low // 1), int(high // 1)
            values = [n for n in range(first, last + 1) if not is_excluded(schema, n)]
            return self._enum(values)
        if low is not None and low >= 0:
            return self._terminal("natural" if kind == "integer" else "positive")
        return self._terminal(kind)

    def _enum(self, values: object) -> str:
        if not isinstance(values, list):
            raise BadGrammar("enum: not a list", "enum")
        if not values:
            raise _Impossible
        return self._rule(" | ".join(dict.fromkeys(map(_json_literal, values))))

    def _any(self, depth: int) -> str:
        """Return any JSON value, at most `depth` containers deep."""
        key = ("any", depth)
        if key not in self._known:
            scalars = [self._string({}), *map(self._terminal, ("number", "boolean", "null"))]
            if depth:
                inner, ws = self._any(depth - 1), self._terminal("ws")
                pair = self._pair_of_any_name(inner)
                scalars.append(self._rule(f'"{{" {self._members([], pair)} "}}"'))
                scalars.append(self._rule(f'"[" {ws} ({inner} ("," {ws} {inner}){{0,{MAX_PROPERTIES - 1}}})? {ws} "]"'))
            self._known[key] = self._rule(" | ".join(scalars))
        return self._known[key]

    def _pair_of_any_name(self, symbol: str) -> str:
        return self._rule(f'"\\"" {self._terminal("char")}{{0,63}} "\\":" {self._terminal("ws")} {symbol}')

    # Rules

    def _repeat(self, symbol: str, low: int, high: int) -> str:
        """Return `symbol` repeated low to high times.

        llama.cpp makes a rule of every optional repetition; blocks of _BLOCK keep their number near the root of `high`.
        """
        if high < _BLOCK:
            return f"{symbol}{{{low},{high}}}"
        block = self._rule(f"{symbol}{{{_BLOCK}}}")
        required = [f"{block}{{{low // _BLOCK}}}"] if low >= _BLOCK else []
        required += [f"{symbol}{{{low % _BLOCK}}}"] if low % _BLOCK else []
        blocks, rest = divmod(high - low, _BLOCK)
        if not blocks:
            return " ".join([*required, *([f"{symbol}{{0,{rest}}}"] if rest else [])])
        shorter = f"{block}{{0,{blocks - 1}}} {symbol}{{0,{_BLOCK - 1}}}"
        longest = f"{block}{{{blocks}}}" + (f" {symbol}{{0,{rest}}}" if rest else "")
        return " ".join([*required, f"({shorter} | {longest})"])

    def _rule(self, body: str) -> str:
        """Return the name of the rule with this body."""
        name = self._known.get(body)
        if name is None:
            if len(self.rules) >= MAX_RULES:
                raise BadGrammar(f"the schema needs more than {MAX_RULES} grammar rules")
            name = f"r{len(self.rules)}"
            self.rules[name] = body
            self._known[body] = name
        return name

    def _terminal(self, name: str) -> str:
        if name not in self.rules:
            self.rules[name] = _TERMINALS[name]
            for other in _NEEDS.get(name, ()):
                self._terminal(other)
        return name

    def _refuse_unknown(self, schema: Mapping[str, Any]) -> None:
        for keyword in schema:
            if keyword not in ENFORCED and keyword not in CHECKED_AFTERWARDS and keyword not in ANNOTATIONS:
                raise BadGrammar(f"the JSON Schema keyword {keyword!r:.80} is not supported", str(keyword))


def _json_literal(value: object) -> str:
    try:
        return literal(json.dumps(value, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise BadGrammar(f"{value!r:.80} is no JSON value: {error}") from error
