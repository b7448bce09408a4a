"""Check JSON text against a JSON Schema. The one file through which jsonschema enters.

Its keywords that match patterns are replaced by ours, which match in linear time. A schema with patterns is refused if
jsonschema would use its own keywords for a part of it. A pattern of which a part cannot be matched in linear time is
checked by the rest of it. A schema with such a pattern is loosened where a looser pattern would make it stricter, as
under `not`. `unenforced` says what is loosened. The formats of `FORMATS` are checked.

A schema of a few lines can ask for 2^n comparisons (each of n definitions names the one before it twice), and clients
write schemas. So checks of values are counted in steps, of which a check may take only so many.
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
from orchestrator.task.taskir.patterns import BadPattern, matches, patterns_in, read_pattern
from orchestrator.task.taskir.problems import pointer, schema_problem

MESSAGE_LENGTH = 300
"""How many characters of a message of jsonschema are kept."""

ERRORS_WEIGHED = 100
"""Out of how many errors the one that explains most is chosen."""

MAX_SCHEMA = 1 << 20
"""How many characters a schema may have, as JSON: to check one takes a second for each hundred thousand."""

MAX_STEPS = 50_000
"""How many steps the check of a small value may take: about a second on a busy core. A step is a keyword on a value."""

STEPS_OF_A_PART = 50
"""How many further steps it may take for each number, text, list and object in the value."""

TIGHTENED_BY_LOOSER_PARTS = ("not", "if", "contains", "oneOf")
"""Keywords that may refuse a value because a part of the schema accepts it."""
MAX_PATTERNS = 200
"""How many different patterns a schema may have. To compile one may take a tenth of a second."""

OTHER_KEYWORDS = frozenset({"$schema", "$dynamicAnchor", "$recursiveAnchor"})
"""Keywords through which jsonschema applies a schema with its own keywords instead of ours."""


class SchemaMismatch(Exception):
    """A text is not JSON, or its JSON does not match the schema. `evidence` says in one line where and why."""

    def __init__(self, evidence: str) -> None:
        super().__init__(evidence)
        self.evidence = evidence


class BadSchema(Exception):
    """A schema is not a JSON Schema, or cannot be applied, so that no answer could ever match it."""


class Mismatch(NamedTuple):
    """A place at which a value does not match a schema, or a schema is none."""

    path: tuple[str | int, ...]
    """The keys that lead to the place."""
    message: str
    """What is wrong there."""


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
        except (AttributeError, TypeError, ValueError) as error:  # jsonschema looks up "$schema" before it checks it
            raise BadSchema(f"not a JSON Schema: at /$schema: {_clip(repr(self.schema.get('$schema')))}") from error

    def read(self, text: str) -> object:
        """Return the value of a JSON text. Raises `SchemaMismatch` and `BadSchema` as `check` does."""
        value, problems = read_json(text)
        if problems:
            raise SchemaMismatch(str(problems[0]))
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        """Raise `SchemaMismatch` if the value does not match, or `BadSchema` if the schema turns out to be unusable."""
        worst = best_match(iter(self._errors(value)))
        if isinstance(worst, ValidationError):
            raise SchemaMismatch(f"{pointer(worst.absolute_path)}: {_clip(worst.message)}")

    def mismatches(self, value: Any) -> list[Mismatch]:
        """Return where the value does not match, up to a hundred places. Raises `BadSchema` as `check` does."""
        return [Mismatch(tuple(error.absolute_path), _clip(error.message)) for error in self._errors(value)]

    def _errors(self, value: Any) -> list[ValidationError]:
        _budget.left = MAX_STEPS + STEPS_OF_A_PART * _parts(value)
        try:
            return list(islice(self._validator.iter_errors(value), ERRORS_WEIGHED))
        except (Unresolvable, ValueError) as error:  # ValueError: a reference that is not a valid URL
            raise BadSchema(f"the schema refers to something that is not in it: {_clip(str(error))}") from error
        except RecursionError as error:
            raise BadSchema("the schema refers to itself without end, or too deep") from error


def schema_mismatch(schema: Any) -> Mismatch | None:
    """Return where something is no JSON Schema of the draft 2020-12, or None if it is one."""
    try:
        _check_schema(Draft202012Validator, schema)
    except SchemaError as error:
        return Mismatch(tuple(error.absolute_path), _clip(schema_problem(error)))
    return None


def unenforced(schema: Any) -> Iterator[Mismatch]:
    """Yield what of a JSON Schema is not checked at all, or only in part: patterns, and formats of strings.

    Raises `BadPattern`.
    """
    relaxed = [(path, pattern, why) for path, pattern in patterns_in(schema) if (why := read_pattern(pattern).relaxed)]
    for path, pattern, why in relaxed:
        yield Mismatch(path, f"the pattern {_clip(repr(pattern))} is not checked as a whole: {why}")
    for path, keyword in _places_of(TIGHTENED_BY_LOOSER_PARTS, schema) if relaxed else ():
        how = "is checked as anyOf" if keyword == "oneOf" else "is not checked"
        yield Mismatch(path, f"{keyword} {how}, since a pattern of the schema is not checked as a whole")
    for path, name in _places_of(("format",), schema):
        if isinstance(name, str) and name in NOT_ENFORCED:
            yield Mismatch(path, f"the format {name} is not checked; those that are: {', '.join(FORMATS)}")


def _places_of(
    keywords: Collection[str], schema: object, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the path and the value (a text) or else the name of each of these keywords in a JSON Schema."""
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key in keywords:
                yield (*path, key), value if isinstance(value, str) else key
            yield from _places_of(keywords, value, (*path, key))
    elif isinstance(schema, list):
        for index, value in enumerate(schema):
            yield from _places_of(keywords, value, (*path, index))


def _check_schema(kind: type[Validator], schema: Any) -> None:
    """Raise SchemaError if something is no schema of this draft."""
    if kind is not Draft202012Validator:
        older = kind(kind.META_SCHEMA, format_checker=_format_checker(kind))
        if (worst := best_match(older.iter_errors(schema))) is not None:
            raise SchemaError.create_from(worst)
        return
    for error in _metaschema().iter_errors(schema):
        raise SchemaError.create_from(error)


@cache
def _metaschema() -> Validator:
    """Return a validator of schemas of the draft 2020-12.

    The published schema of schemas refers to seven others by dynamic references, which are searched for each keyword
    anew. This one has the same rules in one schema that refers to itself, and is six times as fast.
    """
    whole = Draft202012Validator.META_SCHEMA
    parts = [SPECIFICATIONS.contents(f"{whole['$id'].rpartition('/')[0]}/{part['$ref']}") for part in whole["allOf"]]
    joined: dict[str, Any] = {"type": whole["type"], "properties": {}, "$defs": {}}
    for part in map(_self_contained, [*parts, whole]):
        joined["properties"] |= part["properties"]
        joined["$defs"] |= part.get("$defs", {})
    return Draft202012Validator(joined, registry=Registry(), format_checker=_format_checker(Draft202012Validator))


@cache
def _format_checker(kind: type[Validator]) -> FormatChecker:
    """Return what checks formats in schemas of a draft, but for patterns: those of Python are not those of schemas."""
    checker = FormatChecker(())
    checker.checkers = {name: check for name, check in kind.FORMAT_CHECKER.checkers.items() if name != "regex"}
    return checker


def _self_contained(node: Any) -> Any:
    """Return a part of the schema of schemas that refers to the whole of the one that it becomes a part of."""
    if isinstance(node, list):
        return [_self_contained(one) for one in node]
    if not isinstance(node, dict):
        return node
    names = {"$id", "$schema", "$dynamicAnchor"}
    kept = {key: value for key, value in node.items() if not (key in names and isinstance(value, str))}
    if isinstance(kept.get("$dynamicRef"), str):
        kept["$ref"] = "#" if kept["$dynamicRef"] == "#meta" else kept["$dynamicRef"]
        del kept["$dynamicRef"]
    return {key: _self_contained(value) for key, value in kept.items()}


@lru_cache(maxsize=256)
def _validator(schema: str) -> Validator:
    """Return the validator of a schema. They are cached: checking a schema takes longer than checking most answers."""
    known = json.loads(schema)
    kind = validator_for(known, default=Draft202012Validator)
    _check_schema(kind, known)
    known.pop("$schema", None)
    _check_patterns(known)
    relaxed = any(read_pattern(pattern).relaxed for _, pattern in patterns_in(known))
    return _bounded(kind, relaxed)(known, registry=Registry())


def _check_patterns(schema: object) -> None:
    """Raise `BadPattern`, or `BadSchema` for a schema with a pattern that jsonschema would match by itself."""
    patterns = tuple(patterns_in(schema))
    distinct = dict.fromkeys(pattern for _, pattern in patterns)
    if len(distinct) > MAX_PATTERNS:
        raise BadSchema(f"the schema has {len(distinct)} different patterns; accepted: at most {MAX_PATTERNS}")
    for pattern in distinct:
        read_pattern(pattern)
    of_names = any(path[-1] == "patternProperties" for path, _ in patterns)
    entries = tuple(_entries(schema))
    others = [key for key, value in entries if key in OTHER_KEYWORDS and not isinstance(value, dict)]
    others += [key for key, _ in entries if key == "unevaluatedProperties" and of_names]
    if patterns and others:
        raise BadSchema(f"a schema with patterns cannot have {others[0]} inside of it")


def _entries(schema: object) -> Iterator[tuple[str, Any]]:
    """Yield the keys and values of all objects in a schema. Properties' names are among the keys."""
    if isinstance(schema, dict):
        yield from schema.items()
        schema = list(schema.values())
    for inner in schema if isinstance(schema, list) else ():
        yield from _entries(inner)


class _Budget(threading.local):
    """How many steps the check that runs in this thread may still take."""

    left = 0

    def spend(self, steps: int) -> None:
        """Take account of these steps. Raises `BadSchema` where the check has taken too many."""
        self.left -= steps
        if self.left < 0:
            what = f"the schema takes more than {MAX_STEPS} steps to check a value, and {STEPS_OF_A_PART} for each part"
            raise BadSchema(f"{what} of it; accepted: one with fewer references and alternatives inside of each other")


_budget = _Budget()
_Keyword = Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]


@cache
def _bounded(kind: type[Validator], relaxed: bool) -> type[Validator]:
    """Return a class of validators that counts its steps, and matches patterns with `matches`.

    `relaxed` says that one of the patterns accepts more than it should.
    """
    patterned = _with_our_patterns(kind)
    if relaxed:
        loosened = dict.fromkeys(TIGHTENED_BY_LOOSER_PARTS, _accept) | {"oneOf": kind.VALIDATORS.get("anyOf", _accept)}
        patterned = extend(patterned, loosened)  # type: ignore[no-untyped-call]
    counted = {name: _counted(name, keyword) for name, keyword in patterned.VALIDATORS.items()}
    bounded: Any = extend(patterned, counted)  # type: ignore[no-untyped-call]
    theirs = bounded.evolve

    def evolve(self: Any, **changes: Any) -> Any:
        """Return the validator of a part of the schema. It is of the same class, whatever `$schema` the part names."""
        _budget.spend(1)
        part = changes.get("schema", self.schema)
        if isinstance(part, dict) and "$schema" in part:
            changes["schema"] = {keyword: value for keyword, value in part.items() if keyword != "$schema"}
        return theirs(self, **changes)

    bounded.evolve = evolve
    return bounded  # type: ignore[no-any-return]


def _accept(validator: Any, wanted: Any, value: Any, schema: object) -> Iterable[ValidationError]:
    return ()


def _counted(name: str, keyword: _Keyword) -> _Keyword:
    """Return a keyword that counts its steps, and that keeps no more of the message of an error than is shown."""

    def apply(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterable[ValidationError]:
        sizes = (len(one) for one in (wanted, value, schema) if isinstance(one, dict | list))
        _budget.spend(1 + (sum(sizes) >> 4))
        if name in ("anyOf", "oneOf"):  # the error of a false schema would quote the value, without coming by here
            wanted = [{"not": {}} if one is False else one for one in wanted]
        return map(_shortened, keyword(validator, wanted, value, schema) or ())

    return apply


def _shortened(error: ValidationError) -> ValidationError:
    _budget.spend(len(error.message) >> 6)
    error.message = _clip(error.message)
    return error


def _parts(value: object) -> int:
    """Return how many numbers, texts, lists and objects are in a value, with itself."""
    count, left = 0, [value]
    while left:
        one = left.pop()
        count += 1
        if isinstance(one, dict):
            left += one.values()
        elif isinstance(one, list):
            left += one
    return count


@lru_cache
def _with_our_patterns(kind: type[Validator]) -> type[Validator]:
    """Return a class of validators that matches patterns with `matches`, and checks formats."""
    theirs = kind.VALIDATORS["additionalProperties"]

    def additional(validator: Any, wanted: Any, value: Any, schema: Mapping[str, Any]) -> Any:
        """Check `additionalProperties` with the properties that patterns name added to `properties`."""
        patterns = schema.get("patternProperties", {}) if validator.is_type(value, "object") else {}
        _budget.spend(len(patterns) * len(value) >> 4 if patterns else 0)
        named = [name for pattern in patterns for name in value if matches(pattern, name)]
        rest = {keyword: own for keyword, own in schema.items() if keyword != "patternProperties"}
        properties = {**schema.get("properties", {}), **dict.fromkeys(named, True)}
        return theirs(validator, wanted, value, {**rest, "properties": properties})

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


def _unique_items(validator: Any, wanted: bool, value: Any, schema: object) -> Iterator[ValidationError]:
    """Check `uniqueItems` in linear time. jsonschema's own compares each object with each."""
    if wanted and validator.is_type(value, "array") and len({_comparable(one) for one in value}) < len(value):
        yield ValidationError(f"{value!r} has non-unique elements")


def _comparable(value: Any) -> Any:
    """Return something that is equal for equal JSON values only: 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(value, dict):
        return frozenset((name, _comparable(one)) for name, one in value.items())
    if isinstance(value, list):
        return tuple(_comparable(one) for one in value)
    return (bool, value) if isinstance(value, bool) else value


def _pattern(validator: Any, pattern: str, value: Any, schema: object) -> Iterator[ValidationError]:
    if validator.is_type(value, "string") and not matches(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _format(validator: Any, name: object, value: Any, schema: object) -> Iterator[ValidationError]:
    wanted = FORMATS.get(name) if isinstance(name, str) else None
    if wanted is not None and validator.is_type(value, "string") and not matches(wanted.accepted, value):
        yield ValidationError(f"{value!r} is not a {name!r}")


def _pattern_properties(validator: Any, patterns: Mapping[str, Any], value: Any, schema: object) -> Iterator[Any]:
    """Check properties by the patterns of their names. One that only a relaxed pattern matches is not checked."""
    names = value if validator.is_type(value, "object") else ()
    _budget.spend(len(patterns) * len(names) >> 4)
    exact = [pattern for pattern in patterns if not read_pattern(pattern).relaxed]
    for pattern, name in product(exact, names):
        if matches(pattern, name):
            yield from validator.descend(value[name], patterns[pattern], path=name, schema_path=pattern)


def _clip(message: str) -> str:
    """Return the message, without its middle if it is long: it goes into a prompt and may quote a whole answer."""
    if len(message) <= MESSAGE_LENGTH:
        return message
    return f"{message[: MESSAGE_LENGTH // 2]} … {message[-MESSAGE_LENGTH // 2 :]}"
