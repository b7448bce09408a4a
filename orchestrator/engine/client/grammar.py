"""Turn a JSON Schema into a GBNF grammar all of whose texts have a bounded length.

Strings, arrays, numbers, white space and recursion are bounded even if the schema does not bound them, so that every
generation ends. The grammar accepts a subset of the schema: properties come in the schema's order, unnamed properties
only if `additionalProperties` or `patternProperties` says so, and recursive references nest at most `MAX_RECURSION`
deep. A `type` next to `enum` or `const` is ignored, as are unknown keywords and formats outside of `FORMATS`. Keywords
that a grammar cannot express (`left_to_validator` lists them) are not enforced, so the result must be validated.
"""

import functools
import hashlib
import json
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

from orchestrator.engine.client.pattern import NotSimple, pattern_rule, text_rule
from orchestrator.engine.client.schema import (
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
from orchestrator.engine.contract import COMPACT
from orchestrator.engine.errors import BadGrammar
from orchestrator.registry.call_syntax import CallSyntax
from orchestrator.task.taskir.formats import FORMATS
from orchestrator.task.taskir.patterns import read_pattern

MAX_STRING = 8192  # characters of a string without `maxLength`
MAX_ITEMS = 256  # items of an array without `maxItems`
MAX_PROPERTIES = 64  # unnamed properties of an object
MAX_RECURSION = 4  # times that a reference is followed inside itself
MAX_DEPTH = 64  # nesting of schemas
MAX_RULES = 20_000  # rules of one grammar
# Optional properties of one object, and schemas in one `anyOf`. At each token the engine tries all of them; with 5,000
# a token took seconds.
MAX_ALTERNATIVES = 1000
MOST_ALTERNATIVES = 16  # enum values that are listed without factoring out common prefixes
MOST_SHARED = 256  # nesting of such prefixes
MOST_SECONDS = 10.0  # CPU time to make one grammar
MOST_KEPT = 1 << 25  # characters of all grammars in the cache
ANY_DEPTH = 3  # nesting of a value of any type
MAX_CALLS = 16  # tool calls in one answer
_BLOCK = 64

# The largest absolute value of an integer, unless the schema has a bound beyond it.
LARGEST = 10**15 - 1
# Only a validator checks these, and also, except in simple cases, `not`, `pattern`, `patternProperties` and bounds of
# non-integers.
CHECKED_AFTERWARDS = frozenset(
    "multipleOf uniqueItems minProperties maxProperties contains minContains maxContains propertyNames "
    "dependentRequired dependentSchemas if then else unevaluatedItems unevaluatedProperties".split()
)
_APPLICATORS = frozenset("items prefixItems additionalProperties anyOf oneOf allOf".split())
_BY_NAME = frozenset("properties patternProperties $defs definitions".split())
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
    """Return the GBNF grammar of a JSON Schema, with the start rule `root`. Raises BadGrammar naming the keyword."""
    text = _dumped(schema)
    return _KEPT.get(_digest(text)) or _KEPT.keep(_digest(text), _grammar(text))


def kept_schema_grammar(schema: Schema) -> str | None:
    """Return the grammar of a JSON Schema if it is cached, otherwise None. Raises BadGrammar."""
    return _KEPT.get(_digest(_dumped(schema)))


class _KeptGrammars:
    # A thread-safe LRU cache: steps and conversations use the same few schemas again and again.

    def __init__(self) -> None:
        self._grammars: OrderedDict[bytes, str] = OrderedDict()
        self._characters = 0
        self._lock = threading.Lock()

    def get(self, digest: bytes) -> str | None:
        with self._lock:
            grammar = self._grammars.get(digest)
            if grammar is not None:
                self._grammars.move_to_end(digest)
            return grammar

    def keep(self, digest: bytes, grammar: str) -> str:
        with self._lock:
            if digest not in self._grammars:
                self._grammars[digest] = grammar
                self._characters += len(grammar)
            while self._characters > MOST_KEPT and len(self._grammars) > 1:
                self._characters -= len(self._grammars.popitem(last=False)[1])
        return grammar


_KEPT: Final = _KeptGrammars()


def _dumped(schema: object) -> str:
    try:
        return json.dumps(schema)
    except RecursionError:
        raise BadGrammar("the schema is nested too deeply") from None


def _digest(text: str, *more: object) -> bytes:
    return hashlib.sha256(f"{more!r}\n{text}".encode()).digest()


def _grammar(text: str, closing: str | None = None) -> str:
    # With `closing`, that text follows, and white space is allowed around both.
    try:
        schema: Schema = json.loads(text)
        writer = _Writer(schema)
        root = writer.value(schema, 0, ())
        if closing is not None:
            space = writer.flexible(" ")
            root = " ".join(filter(None, (space, root, writer.flexible(closing), space)))
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


def calls_grammar(
    syntax: CallSyntax,
    tools: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    most: int = MAX_CALLS,
    answer: Schema | None = None,
) -> str:
    """Return the GBNF grammar of an answer of one to `most` tool calls in a family's syntax.

    `tools` are names and JSON Schemas of arguments. With `answer`, a JSON Schema, an answer without calls is allowed
    too. Raises BadGrammar.
    """
    text, most = _dumped([[[name, schema] for name, schema in tools], answer]), most if syntax.several else 1
    digest = _digest(text, syntax, most)
    return _KEPT.get(digest) or _KEPT.keep(digest, _calls_grammar(syntax, text, most))


def arguments_grammar(syntax: CallSyntax, schema: Mapping[str, Any]) -> str:
    """Return the GBNF grammar of the rest of a tool call from its arguments on.

    `schema` is the JSON Schema of the arguments. Raises BadGrammar.
    """
    text = _dumped(schema)
    digest = _digest(text, "arguments", syntax.closing)
    return _KEPT.get(digest) or _KEPT.keep(digest, _grammar(text, closing=syntax.closing))


def _calls_grammar(syntax: CallSyntax, tools: str, most: int) -> str:
    listed, answer = json.loads(tools)
    named: list[tuple[str, Schema]] = [(name, schema) for name, schema in listed]
    whole = [rebased(schema, f"#/tools/{index}") for index, (_, schema) in enumerate(named)]
    writer = _Writer({"tools": whole, "answer": rebased(answer, "#/answer")})
    bodies = []
    try:
        for index, (name, _) in enumerate(named):
            arguments = writer.value({"$ref": f"#/tools/{index}"}, 0, ())
            middle = writer.flexible(syntax.middle)
            bodies.append(" ".join(filter(None, (literal(json.dumps(name)[1:-1]), middle, arguments))))
        alternative = "" if answer is None else " | " + writer.value({"$ref": "#/answer"}, 0, ())
    except _Impossible:
        raise BadGrammar("no JSON value satisfies the schema") from None
    except RecursionError:
        raise BadGrammar("the schema is nested too deeply") from None
    except (AttributeError, TypeError) as error:
        raise BadGrammar(f"not a JSON Schema: {error}") from None
    first = writer.flexible(syntax.start + syntax.opening)
    writer.rules["call"] = f"({' | '.join(bodies)}) {writer.flexible(syntax.closing)}"
    next_call = f"({writer.flexible(syntax.separator + syntax.opening)} call)"
    more = f"{next_call}{{0,{most - 1}}}" if most > 1 else ""
    root = " ".join(filter(None, (first, "call", more, writer.flexible(syntax.end))))
    rules = "".join(f"{name} ::= {body}\n" for name, body in writer.rules.items())
    return f"root ::= {root}{alternative}\n{rules}"


@functools.lru_cache(maxsize=64)
def pattern_grammar(pattern: str) -> str:
    """Return the GBNF grammar of a text that matches a regular expression as a whole. Raises BadGrammar."""
    writer = _Writer(True)
    try:
        root = text_rule(pattern, writer.rule, writer.repeat)
    except NotSimple as error:
        raise BadGrammar(f"the pattern has no grammar: {error}") from error
    return f"root ::= {root}\n" + "".join(f"{name} ::= {body}\n" for name, body in writer.rules.items())


def rebased(schema: Any, place: str) -> Any:
    """Return a schema with its references rewritten for a place at the JSON pointer `place` of another schema."""
    if isinstance(schema, list):
        return [rebased(item, place) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {key: rebased(value, place) for key, value in schema.items()}
    if isinstance(target := copy.get("$ref"), str) and (target == "#" or target.startswith("#/")):
        copy["$ref"] = place + target[1:]
    return copy


def literal(text: str) -> str:
    escaped = "".join({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(c, c) for c in text)
    return f'"{escaped}"'


def _within(refs: tuple[str, ...], *names: str) -> tuple[str, ...]:
    # Sorted, because only the counts matter and the orders are too many to cache.
    if any(refs.count(name) > MAX_RECURSION for name in names):
        raise _Impossible
    return tuple(sorted((*refs, *names)))


class _Writer:
    def __init__(self, root: Schema) -> None:
        self.rules: dict[str, str] = {}
        self._root = root
        self._compact = isinstance(root, Mapping) and bool(root.get(COMPACT))
        self._known: dict[object, str] = {}
        self._end = time.thread_time() + MOST_SECONDS

    def value(self, schema: Schema, depth: int, refs: tuple[str, ...]) -> str:
        """Return the symbol of a value that satisfies the schema. Raises _Impossible, BadGrammar."""
        self._check_limits(depth)
        if schema is True or schema == {}:
            return self._any(ANY_DEPTH)
        if _matches_nothing(schema):
            raise _Impossible
        if not isinstance(schema, Mapping):
            raise BadGrammar(f"a schema must be an object or a boolean, not {schema!r:.80}")
        if "$ref" in schema:
            return self._reference(schema, depth, refs)
        for keyword in ("allOf", "anyOf", "oneOf"):
            if keyword in schema:
                return self._combined(keyword, schema, depth, refs)
        if "const" in schema:
            return self.rule(_json_literal(schema["const"]))
        if "enum" in schema:
            return self._enum(schema["enum"])
        return self._typed(schema, depth, refs)

    def _check_limits(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise BadGrammar(f"the schema is nested more than {MAX_DEPTH} deep")
        if time.thread_time() > self._end:
            raise BadGrammar(f"it takes longer than {MOST_SECONDS:g} s to turn the schema into a grammar")

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
        if not kinds and schema.get("format") in FORMATS:
            kinds = "string"
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

    def flexible(self, text: str) -> str:
        """Return an expression for a text with any or no white space in place of its white space. May be empty."""
        pieces = re.split(r"(\s+)", text)
        return " ".join(self._terminal("ws") if piece.isspace() else literal(piece) for piece in pieces if piece)

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
        _check_alternatives(len(symbols), "alternatives in one place")
        return self.rule(" | ".join(dict.fromkeys(symbols)))

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
        # The schema that references point to is merged with what stands next to them.
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
        path = unquote(name[1:])
        if path and not path.startswith("/"):
            anchored = next(_anchored(self._root, path), None)
            if anchored is None:
                raise BadGrammar(f"$ref: nothing has the anchor {name}", "$ref")
            return anchored
        node: Any = self._root
        for part in path.split("/")[1:]:
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
        unnamed: Schema = schema.get("additionalProperties", True)
        extra = self._extra(schema)
        pairs: list[tuple[str, bool]] = []
        for name, part in {**properties, **{n: unnamed for n in required if n not in properties}}.items():
            try:
                symbol = self.value(part, depth + 1, refs)
            except _Impossible:
                if name in required:
                    raise
                continue
            pairs.append((f'{_json_literal(name)} ":" {self._terminal("ws")} {symbol}', name in required))
        _check_alternatives(sum(not required for _, required in pairs), "optional properties in one object")
        return self.rule(f'"{{" {self._members(pairs, self._extra_pair(extra, depth, refs))} "}}"')

    def _extra(self, schema: Mapping[str, Any]) -> Schema:
        # An object with named properties has no others unless the schema mentions them. Names that must match a pattern
        # may be any name here, with a value that one of the patterns allows.
        extra: Schema = schema.get("additionalProperties", "properties" not in schema)
        patterns = mapping_of(schema, "patternProperties")
        if not patterns:
            return extra
        return {"anyOf": [*patterns.values(), *([] if "additionalProperties" not in schema else [extra])]}

    def _extra_pair(self, extra: Schema, depth: int, refs: tuple[str, ...]) -> str | None:
        try:
            return self._pair_of_any_name(self.value(extra, depth + 1, refs))
        except _Impossible:
            return None

    def _members(self, pairs: list[tuple[str, bool]], extra: str | None) -> str:
        # Built from the end, so that the size is linear in the number of members.
        ws = self._terminal("ws")
        after = self.rule(f'("," {ws} {extra}){{0,{MAX_PROPERTIES - 1}}} {ws}') if extra else ws
        first = self.rule(f"{ws} ({extra} {after})?") if extra else self.rule(ws)
        for pair, required in reversed(pairs):
            kv = self.rule(pair)
            present = f"{ws} {kv} {after}"
            first = self.rule(present if required else f"{present} | {first}")
            after = self.rule(f'"," {ws} {kv} {after}' if required else f'"," {ws} {kv} {after} | {after}')
        return first

    def _array(self, schema: Mapping[str, Any], depth: int, refs: tuple[str, ...]) -> str:
        if isinstance(schema.get("items"), list):
            raise BadGrammar(
                "items: a list of schemas was a tuple before draft 2020-12; accepted: prefixItems", "items"
            )
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
        tail = self.rule(f'"," {ws} {item}') if item else None
        body = self._items(firsts[:high], item, tail, low, high)
        return self.rule(f'"[" {ws} {body} {ws} "]"' if body else f'"[" {ws} "]"')

    def _items(self, firsts: list[str], item: str | None, tail: str | None, low: int, high: int) -> str:
        # `firsts` come first, then `item`; `tail` is `item` after a comma.
        ws = self._terminal("ws")
        first, *more = [*firsts, *([item] if item and not firsts else [])] or [""]
        if not first:
            return ""
        count = high - max(len(firsts), 1)
        rest = ""
        if tail and count > 0:
            rest = self.repeat(tail, max(0, low - max(len(firsts), 1)), count)
        for position, first_item in reversed(list(enumerate(more, start=2))):
            rest = f'"," {ws} {first_item} {rest}' if position <= low else f'("," {ws} {first_item} {rest})?'
        return f"{first} {rest}" if low >= 1 else f"({first} {rest})?"

    def _string(self, schema: Mapping[str, Any]) -> str:
        low = count_of(schema, "minLength", 0)
        high = count_of(schema, "maxLength", max(low, MAX_STRING))
        if high < low:
            raise _Impossible
        char = self._terminal("char")
        for pattern in _string_patterns(schema):
            matching = pattern_rule(pattern, self.rule, self.repeat, char)
            if matching is not None:
                return self.rule(f'"\\"" {matching} "\\""')
        body = self.repeat(char, low, min(high, max(low, MAX_STRING)))
        return self.rule(f'"\\"" {body} "\\""')

    def _number(self, kind: str, schema: Mapping[str, Any]) -> str:
        low, high = bounds_of(schema)
        if low is not None and high is not None and low > high:
            raise _Impossible
        if kind == "integer" and (low is not None or high is not None):
            first = -max(LARGEST, -2 * int(high or 0)) if low is None else -int(-low // 1)
            last = max(LARGEST, 2 * first) if high is None else int(high // 1)
            first += is_excluded(schema, first)
            last -= is_excluded(schema, last)
            if first > last:
                raise _Impossible
            return self.rule(integer_range(first, last))
        if low is not None and low >= 0:
            return self._terminal("positive")
        return self._terminal(kind)

    def _enum(self, values: object) -> str:
        if not isinstance(values, list):
            raise BadGrammar("enum: not a list", "enum")
        if not values:
            raise _Impossible
        return self._one_of_texts([*dict.fromkeys(map(_json_text, values))], 0, MOST_SHARED)

    def _one_of_texts(self, texts: Sequence[str], at: int, depth: int) -> str:
        # The rest of the texts from `at` on. Common prefixes are factored out, nested up to `depth`: llama.cpp compares
        # all ways in which a text may continue in pairs, which takes half a minute for 20,000 texts.
        if len(texts) <= MOST_ALTERNATIVES or not depth:
            return self.rule(" | ".join(literal(text[at:]) for text in texts))
        alike: dict[str, list[str]] = {}
        for text in texts:
            alike.setdefault(text[at : at + 1], []).append(text)
        choices = []
        for group in alike.values():
            shared = _shared_length(min(group), max(group))
            longer = [text for text in group if len(text) > shared]
            if len(group) == 1:
                choices.append(literal(group[0][at:]))
            else:
                rest = self._one_of_texts(longer, shared, depth - 1)
                choices.append(f"{literal(group[0][at:shared])} {rest}{'?' if len(longer) < len(group) else ''}")
        return self.rule(" | ".join(choices))

    def _any(self, depth: int) -> str:
        key = ("any", depth)
        if key not in self._known:
            scalars = [self._string({}), *map(self._terminal, ("number", "boolean", "null"))]
            if depth:
                inner, ws = self._any(depth - 1), self._terminal("ws")
                pair = self._pair_of_any_name(inner)
                scalars.append(self.rule(f'"{{" {self._members([], pair)} "}}"'))
                scalars.append(self.rule(f'"[" {ws} ({inner} ("," {ws} {inner}){{0,{MAX_PROPERTIES - 1}}})? {ws} "]"'))
            self._known[key] = self.rule(" | ".join(scalars))
        return self._known[key]

    def _pair_of_any_name(self, symbol: str) -> str:
        return self.rule(f'"\\"" {self._terminal("char")}{{0,63}} "\\":" {self._terminal("ws")} {symbol}')

    # Rules

    def repeat(self, symbol: str, low: int, high: int) -> str:
        """Return `symbol` repeated low to high times."""
        # llama.cpp makes a rule of every optional repetition. Blocks keep their number near the square root of `high`.
        if high < _BLOCK:
            return f"{symbol}{{{low},{high}}}"
        block = self.rule(f"{symbol}{{{_BLOCK}}}")
        required = [f"{block}{{{low // _BLOCK}}}"] if low >= _BLOCK else []
        required += [f"{symbol}{{{low % _BLOCK}}}"] if low % _BLOCK else []
        blocks, rest = divmod(high - low, _BLOCK)
        if not blocks:
            return " ".join([*required, *([f"{symbol}{{0,{rest}}}"] if rest else [])])
        shorter = f"{block}{{0,{blocks - 1}}} {symbol}{{0,{_BLOCK - 1}}}"
        longest = f"{block}{{{blocks}}}" + (f" {symbol}{{0,{rest}}}" if rest else "")
        return " ".join([*required, f"({shorter} | {longest})"])

    def rule(self, body: str) -> str:
        """Return the name of the rule with this body. Raises BadGrammar if there are too many rules."""
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
            self.rules[name] = '""' if name == "ws" and self._compact else _TERMINALS[name]
            for needed in _NEEDS.get(name, ()):
                self._terminal(needed)
        return name


def _check_alternatives(count: int, kind: str) -> None:
    if count > MAX_ALTERNATIVES:
        raise BadGrammar(f"the schema has {count} {kind}; accepted: at most {MAX_ALTERNATIVES}")


def integer_range(low: int, high: int) -> str:
    """Return a GBNF expression of the integers from `low` to `high`, without leading zeros."""
    choices = []
    if low < 0:
        choices += [f'"-" {part}' for part in _natural_ranges(max(1, -high), -low)]
    if high >= 0:
        choices += _natural_ranges(max(0, low), high)
    return " | ".join(choices)


def _natural_ranges(low: int, high: int) -> Iterator[str]:
    for length in range(len(str(low)), len(str(high)) + 1):
        # One expression for each length. `low` is not negative.
        first = max(low, 10 ** (length - 1) if length > 1 else 0)
        last = min(high, 10**length - 1)
        yield _same_length(str(first), str(last))


def _same_length(low: str, high: str) -> str:
    if not low:
        return ""
    # Both have the same number of digits.
    if set(low[1:]) <= {"0"} and set(high[1:]) <= {"9"}:
        first = low[0] if low[0] == high[0] else f"{low[0]}-{high[0]}"
        return f"[{first}]" + (f" [0-9]{{{len(low) - 1}}}" if len(low) > 1 else "")
    if low[0] == high[0]:
        return f'"{low[0]}" {_same_length(low[1:], high[1:])}'
    rest = len(low) - 1
    parts = [f'"{low[0]}" {_same_length(low[1:], "9" * rest)}']
    if int(high[0]) - int(low[0]) > 1:
        parts.append(f"[{int(low[0]) + 1}-{int(high[0]) - 1}] [0-9]{{{rest}}}")
    parts.append(f'"{high[0]}" {_same_length("0" * rest, high[1:])}')
    return f"({' | '.join(parts)})"


def left_to_validator(schema: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield (JSON pointer, keyword) for each keyword of a schema that its grammar does not enforce."""
    if isinstance(schema, list):
        for index, part in enumerate(schema):
            yield from left_to_validator(part, f"{path}/{index}")
    if not isinstance(schema, Mapping):
        return
    yield from ((path, keyword) for keyword in schema if _is_loose(keyword, schema))
    for keyword, value in schema.items():
        if keyword in _BY_NAME and isinstance(value, Mapping):
            for name, part in value.items():
                yield from left_to_validator(part, f"{path}/{keyword}/{_escaped(name)}")
        elif keyword in _APPLICATORS:
            yield from left_to_validator(value, f"{path}/{keyword}")


def _is_loose(keyword: str, schema: Mapping[str, Any]) -> bool:
    value, has_length = schema[keyword], "minLength" in schema or "maxLength" in schema
    match keyword:
        case "not":
            return not _matches_nothing(schema)
        case "pattern" if isinstance(value, str):
            return not _is_simple(value) or has_length or bool(read_pattern(value).ahead)
        case "format" if value in FORMATS:
            return has_length or _is_simple(schema.get("pattern"))
        case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum":
            return schema.get("type") == "number"
    return keyword == "patternProperties" or keyword in CHECKED_AFTERWARDS


def _is_simple(pattern: object) -> bool:
    if not isinstance(pattern, str):
        return False
    return pattern_rule(pattern, lambda body: body, lambda symbol, low, high: symbol, "char") is not None


def _string_patterns(schema: Mapping[str, Any]) -> Iterator[str]:
    # The grammar enforces the first one that is simple.
    if isinstance(pattern := schema.get("pattern"), str):
        yield pattern
    if isinstance(name := schema.get("format"), str) and name in FORMATS:
        yield FORMATS[name].written


def _matches_nothing(schema: Schema) -> bool:
    # Validators in TypeScript write false as {"not": {}}.
    return schema is False or (isinstance(schema, Mapping) and schema.get("not", False) in (True, {}))


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _anchored(schema: object, anchor: str) -> Iterator[Schema]:
    if isinstance(schema, Mapping):
        if schema.get("$anchor") == anchor:
            yield schema
        schema = list(schema.values())
    for part in schema if isinstance(schema, list) else ():
        yield from _anchored(part, anchor)


def _shared_length(first: str, second: str) -> int:
    return next(
        (at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )


def _json_literal(value: object) -> str:
    return literal(_json_text(value))


def _json_text(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadGrammar(f"{value!r:.80} is no JSON value: {error}") from error
