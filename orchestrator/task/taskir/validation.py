"""Check JSON text against a JSON Schema. The only file that imports jsonschema.

Our keywords replace those that match patterns, since ours take linear time. A schema with patterns is refused if
jsonschema would use its own keywords for a part of it. A pattern that cannot be matched in linear time is checked in
part, and the schema is loosened where a looser pattern would make it stricter, as under `not`. `unenforced` lists what
is loosened. The formats of `FORMATS` are checked.

Clients write schemas, and a few lines can ask for 2^n comparisons (each of n definitions names the one before it
twice). So checks are counted in steps and limited.
"""

import json
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import islice, product
from typing import Any, NamedTuple

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for
from jsonschema_specifications import REGISTRY as SPECIFICATIONS
from referencing import Registry
from referencing.exceptions import Unresolvable

from orchestrator.task.taskir.formats import FORMATS, NOT_ENFORCED
from orchestrator.task.taskir.json_text import read_json
from orchestrator.task.taskir.patterns import BadPattern, matches, read_pattern
from orchestrator.task.taskir.problems import pointer, schema_problem

MESSAGE_LENGTH = 300  # characters of a jsonschema message that stay

ERRORS_WEIGHED = 100  # errors from which the most telling one is chosen

MAX_SCHEMA = 1 << 20  # characters, as JSON; a check takes a second per hundred thousand

MAX_STEPS = 50_000  # for a small value: about a second on a busy core. A step is a keyword on a value.

STEPS_OF_A_PART = 50  # added for each number, text, list and object in the value

# They may refuse a value because a part of the schema accepts it.
TIGHTENED_BY_LOOSER_PARTS = ("not", "if", "contains", "oneOf")
MAX_PATTERNS = 200  # different ones; a compilation may take a tenth of a second

# Jsonschema follows these with its own keywords instead of ours.
OTHER_KEYWORDS = frozenset({"$schema", "$dynamicAnchor", "$recursiveAnchor"})


class SchemaMismatch(Exception):
    """A text is not JSON, or does not match the schema. `evidence` says in one line where and why."""

    def __init__(self, evidence: str) -> None:
        super().__init__(evidence)
        self.evidence = evidence


class BadSchema(Exception):
    """A schema is not a JSON Schema, or cannot be applied, so that no answer could match it."""


class Mismatch(NamedTuple):
    """A place at which a value does not match a schema, or at which a schema is invalid."""

    path: tuple[str | int, ...]
    message: str


class OutputSchema:
    """A JSON Schema that values are checked against. References to other documents are never fetched."""

    def __init__(self, schema: Mapping[str, object] | None) -> None:
        """Raises `BadSchema`. If `schema` is None, any JSON matches."""
        self.schema: dict[str, object] = dict(schema or {})
        try:
            text = json.dumps(self.schema)
            if len(text) > MAX_SCHEMA:
                raise BadSchema(f"the schema has {len(text)} characters, and may have {MAX_SCHEMA}")
            self._validator = _validator(text)
        except SchemaError as error:
            where = pointer(error.absolute_path)
            raise BadSchema(f"not a JSON Schema: at {where}: {_clip(schema_problem(error))}") from error
        except BadPattern as error:
            raise BadSchema(str(error)) from error
        except RecursionError as error:
            raise BadSchema("not a JSON Schema that can be read: nested too deep") from error
        except (AttributeError, TypeError, ValueError) as error:  # jsonschema reads "$schema" before it checks it
            raise BadSchema(f"not a JSON Schema: at /$schema: {_clip(repr(self.schema.get('$schema')))}") from error

    def read(self, text: str) -> object:
        """Return the value of a JSON text. Raises `SchemaMismatch` and `BadSchema` as `check` does."""
        value, problems = read_json(text)
        if problems:
            raise SchemaMismatch(str(problems[0]))
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        """Raise `SchemaMismatch` if the value does not match, or `BadSchema` if the schema is unusable."""
        worst = best_match(iter(self._errors(value)))
        if isinstance(worst, ValidationError):
            raise SchemaMismatch(f"{pointer(worst.absolute_path)}: {_clip(worst.message)}")

    def mismatches(self, value: Any) -> list[Mismatch]:
        """Return where the value does not match, up to 100 places. Raises `BadSchema` as `check` does."""
        return [Mismatch(tuple(error.absolute_path), _clip(error.message)) for error in self._errors(value)]

    def _errors(self, value: Any) -> list[ValidationError]:
        _budget.remaining = MAX_STEPS + STEPS_OF_A_PART * _parts(value)
        try:
            return list(islice(self._validator.iter_errors(value), ERRORS_WEIGHED))
        except (Unresolvable, ValueError) as error:  # ValueError: a reference that is not a valid URL
            raise BadSchema(f"the schema refers to something that is not in it: {_clip(str(error))}") from error
        except RecursionError as error:
            raise BadSchema("the schema refers to itself without end, or too deep") from error


def schema_mismatch(schema: Any) -> Mismatch | None:
    """Return where something is no JSON Schema of draft 2020-12, or None."""
    try:
        _check_schema(Draft202012Validator, schema)
    except SchemaError as error:
        return Mismatch(tuple(error.absolute_path), _clip(schema_problem(error)))
    return None


def unenforced(schema: Any) -> Iterator[Mismatch]:
    """Yield the parts of a JSON Schema that are not fully checked: patterns and formats. Raises `BadPattern`."""
    relaxed = [(path, pattern, why) for path, pattern in patterns_in(schema) if (why := read_pattern(pattern).relaxed)]
    for path, pattern, why in relaxed:
        yield Mismatch(path, f"the pattern {_clip(repr(pattern))} is not checked as a whole: {why}")
    for path, keyword in _places_of(TIGHTENED_BY_LOOSER_PARTS, schema) if relaxed else ():
        how = "is checked as anyOf" if keyword == "oneOf" else "is not checked"
        yield Mismatch(path, f"{keyword} {how}, since a pattern of the schema is not checked as a whole")
    for path, name in _places_of(("format",), schema):
        if isinstance(name, str) and name in NOT_ENFORCED:
            yield Mismatch(path, f"the format {name} is not checked; those that are: {', '.join(FORMATS)}")


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


def _places_of(
    keywords: Collection[str], schema: object, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key in keywords:
                yield (*path, key), value if isinstance(value, str) else key
            yield from _places_of(keywords, value, (*path, key))
    elif isinstance(schema, list):
        for index, value in enumerate(schema):
            yield from _places_of(keywords, value, (*path, index))


def _check_schema(kind: type[Validator], schema: Any) -> None:
    if kind is not Draft202012Validator:
        older = kind(kind.META_SCHEMA, format_checker=_format_checker(kind))
        if (worst := best_match(older.iter_errors(schema))) is not None:
            raise SchemaError.create_from(worst)
        return
    for error in _metaschema().iter_errors(schema):
        raise SchemaError.create_from(error)


@cache
def _metaschema() -> Validator:
    # The published metaschema refers to seven others by dynamic references, which are resolved again for each keyword.
    # These are the same rules in one schema, six times as fast.
    whole = Draft202012Validator.META_SCHEMA
    parts = [SPECIFICATIONS.contents(f"{whole['$id'].rpartition('/')[0]}/{part['$ref']}") for part in whole["allOf"]]
    joined: dict[str, Any] = {"type": whole["type"], "properties": {}, "$defs": {}}
    for part in map(_self_contained, [*parts, whole]):
        joined["properties"] |= part["properties"]
        joined["$defs"] |= part.get("$defs", {})
    return Draft202012Validator(joined, registry=Registry(), format_checker=_format_checker(Draft202012Validator))


@cache
def _format_checker(kind: type[Validator]) -> FormatChecker:
    checker = FormatChecker(())
    # Patterns in Python differ from those in schemas.
    checker.checkers = {name: check for name, check in kind.FORMAT_CHECKER.checkers.items() if name != "regex"}
    return checker


def _self_contained(node: Any) -> Any:
    if isinstance(node, list):
        return [_self_contained(item) for item in node]
    if not isinstance(node, dict):
        return node
    names = {"$id", "$schema", "$dynamicAnchor"}
    entries = {key: value for key, value in node.items() if not (key in names and isinstance(value, str))}
    if isinstance(entries.get("$dynamicRef"), str):
        entries["$ref"] = "#" if entries["$dynamicRef"] == "#meta" else entries["$dynamicRef"]
        del entries["$dynamicRef"]
    return {key: _self_contained(value) for key, value in entries.items()}


@lru_cache(maxsize=256)
def _validator(schema: str) -> Validator:
    # Cached, because checking a schema takes longer than checking most answers.
    document = json.loads(schema)
    kind = validator_for(document, default=Draft202012Validator)
    _check_schema(kind, document)
    document.pop("$schema", None)
    _check_patterns(document)
    relaxed = any(read_pattern(pattern).relaxed for _, pattern in patterns_in(document))
    return _bounded(kind, relaxed)(document, registry=Registry())


def _check_patterns(schema: object) -> None:
    patterns = tuple(patterns_in(schema))
    distinct = dict.fromkeys(pattern for _, pattern in patterns)
    if len(distinct) > MAX_PATTERNS:
        raise BadSchema(f"the schema has {len(distinct)} different patterns; accepted: at most {MAX_PATTERNS}")
    for pattern in distinct:
        read_pattern(pattern)
    of_names = any(path[-1] == "patternProperties" for path, _ in patterns)
    entries = tuple(_entries(schema))
    unsupported = [key for key, value in entries if key in OTHER_KEYWORDS and not isinstance(value, dict)]
    unsupported += [key for key, _ in entries if key == "unevaluatedProperties" and of_names]
    if patterns and unsupported:
        raise BadSchema(f"a schema with patterns cannot have {unsupported[0]} inside of it")


def _entries(schema: object) -> Iterator[tuple[str, Any]]:
    # Also of properties, so names of properties are among the keys.
    if isinstance(schema, dict):
        yield from schema.items()
        schema = list(schema.values())
    for inner in schema if isinstance(schema, list) else ():
        yield from _entries(inner)


class _Budget(threading.local):
    remaining = 0  # steps of the check in this thread

    def spend(self, steps: int) -> None:
        """Count these steps. Raises `BadSchema` if the check has taken too many."""
        self.remaining -= steps
        if self.remaining < 0:
            limit = (
                f"the schema takes more than {MAX_STEPS} steps to check a value, and {STEPS_OF_A_PART} for each part"
            )
            raise BadSchema(f"{limit} of it; accepted: one with fewer references and alternatives inside of each other")


_budget = _Budget()
_Keyword = Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]


@cache
def _bounded(kind: type[Validator], relaxed: bool) -> type[Validator]:
    # Validators that count steps and match patterns with `matches`. `relaxed`: some pattern is too lenient.
    patterned = _with_our_patterns(kind)
    if relaxed:
        loosened = dict.fromkeys(TIGHTENED_BY_LOOSER_PARTS, _accept) | {"oneOf": kind.VALIDATORS.get("anyOf", _accept)}
        patterned = extend(patterned, loosened)  # type: ignore[no-untyped-call]
    counted = {name: _counted(name, keyword) for name, keyword in patterned.VALIDATORS.items()}
    bounded: Any = extend(patterned, counted)  # type: ignore[no-untyped-call]
    theirs = bounded.evolve

    def evolve(self: Any, **changes: Any) -> Any:
        _budget.spend(1)
        # A part stays in our class, whatever `$schema` it names.
        part = changes.get("schema", self.schema)
        if isinstance(part, dict) and "$schema" in part:
            changes["schema"] = {keyword: value for keyword, value in part.items() if keyword != "$schema"}
        return theirs(self, **changes)

    bounded.evolve = evolve
    return bounded  # type: ignore[no-any-return]


def _accept(validator: Any, rule: Any, value: Any, schema: object) -> Iterable[ValidationError]:
    return ()


def _counted(name: str, keyword: _Keyword) -> _Keyword:
    def apply(validator: Any, rule: Any, value: Any, schema: Any) -> Iterable[ValidationError]:
        sizes = (len(part) for part in (rule, value, schema) if isinstance(part, dict | list))
        _budget.spend(1 + (sum(sizes) >> 4))
        if name in ("anyOf", "oneOf"):  # the error of a false schema would quote the value, unshortened
            rule = [{"not": {}} if option is False else option for option in rule]
        return map(_shortened, keyword(validator, rule, value, schema) or ())

    return apply


def _shortened(error: ValidationError) -> ValidationError:
    _budget.spend(len(error.message) >> 6)
    error.message = _clip(error.message)
    return error


def _parts(value: object) -> int:
    count, stack = 0, [value]
    while stack:
        part = stack.pop()
        count += 1
        if isinstance(part, dict):
            stack += part.values()
        elif isinstance(part, list):
            stack += part
    return count


@lru_cache
def _with_our_patterns(kind: type[Validator]) -> type[Validator]:
    theirs = kind.VALIDATORS["additionalProperties"]

    def additional(validator: Any, rule: Any, value: Any, schema: Mapping[str, Any]) -> Any:
        patterns = schema.get("patternProperties", {}) if validator.is_type(value, "object") else {}
        _budget.spend(len(patterns) * len(value) >> 4 if patterns else 0)
        # Count as named in `properties`.
        named = [name for pattern in patterns for name in value if matches(pattern, name)]
        rest = {keyword: own for keyword, own in schema.items() if keyword != "patternProperties"}
        properties = {**schema.get("properties", {}), **dict.fromkeys(named, True)}
        return theirs(validator, rule, value, {**rest, "properties": properties})

    ours = {
        "pattern": _pattern,
        "format": _format,
        "patternProperties": _pattern_properties,
        "additionalProperties": additional,
    }
    if "uniqueItems" in kind.VALIDATORS:
        ours["uniqueItems"] = _unique_items
    extended: type[Validator] = extend(kind, ours)  # type: ignore[no-untyped-call]
    return extended


def _unique_items(validator: Any, rule: bool, value: Any, schema: object) -> Iterator[ValidationError]:
    # linear; jsonschema compares each object with each.
    if rule and validator.is_type(value, "array") and len({_comparable(item) for item in value}) < len(value):
        yield ValidationError(f"{value!r} has non-unique elements")


def _comparable(value: Any) -> Any:
    if isinstance(value, dict):
        return frozenset((name, _comparable(item)) for name, item in value.items())
    if isinstance(value, list):
        return tuple(_comparable(item) for item in value)
    return (bool, value) if isinstance(value, bool) else value  # 1 equals 1.0 in JSON, but not true


def _pattern(validator: Any, pattern: str, value: Any, schema: object) -> Iterator[ValidationError]:
    if validator.is_type(value, "string") and not matches(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _format(validator: Any, name: object, value: Any, schema: object) -> Iterator[ValidationError]:
    text_format = FORMATS.get(name) if isinstance(name, str) else None
    if text_format is not None and validator.is_type(value, "string") and not matches(text_format.accepted, value):
        yield ValidationError(f"{value!r} is not a {name!r}")


def _pattern_properties(validator: Any, patterns: Mapping[str, Any], value: Any, schema: object) -> Iterator[Any]:
    names = value if validator.is_type(value, "object") else ()
    _budget.spend(len(patterns) * len(names) >> 4)
    # A relaxed pattern may match too many names.
    exact = [pattern for pattern in patterns if not read_pattern(pattern).relaxed]
    for pattern, name in product(exact, names):
        if matches(pattern, name):
            yield from validator.descend(value[name], patterns[pattern], path=name, schema_path=pattern)


def _clip(message: str) -> str:
    # Without its middle: it goes into a prompt and may quote a whole answer.
    if len(message) <= MESSAGE_LENGTH:
        return message
    return f"{message[: MESSAGE_LENGTH // 2]} … {message[-MESSAGE_LENGTH // 2 :]}"
