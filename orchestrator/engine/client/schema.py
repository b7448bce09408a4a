"""Parse the values of a JSON Schema's keywords, and merge schemas that apply to the same value.

All functions raise BadGrammar, naming the keyword, for an invalid value.
"""

from collections.abc import Mapping
from typing import Any

from orchestrator.engine.errors import BadGrammar

Schema = Mapping[str, Any] | bool

ANNOTATIONS = frozenset(
    "$schema $id $comment $defs definitions $anchor title description default example examples deprecated readOnly "
    "writeOnly contentEncoding contentMediaType contentSchema".split()
)
# Enforced by a grammar.
ENFORCED = frozenset(
    "type enum const properties required additionalProperties items prefixItems minItems maxItems minLength maxLength "
    "minimum maximum exclusiveMinimum exclusiveMaximum anyOf oneOf allOf $ref".split()
)
_LOWER = ("minLength", "minItems", "minimum", "exclusiveMinimum")
_UPPER = ("maxLength", "maxItems", "maximum", "exclusiveMaximum")


def without(schema: Mapping[str, Any], keyword: str) -> dict[str, Any]:
    """Return the schema without one keyword and without annotations."""
    return {key: part for key, part in schema.items() if key != keyword and key not in ANNOTATIONS}


def merge(left: Schema, right: Schema) -> Schema:
    """Return a schema that accepts what both accept. Raises BadGrammar for keywords that cannot be merged."""
    if isinstance(left, bool) or isinstance(right, bool):
        if left is False or right is False:
            return False
        return right if left is True else left
    merged = dict(left)
    for keyword, value in right.items():
        if keyword in ANNOTATIONS:
            continue
        merged[keyword] = _combine(keyword, merged[keyword], value) if keyword in merged else value
    return merged


def _combine(keyword: str, left: Any, right: Any) -> Any:
    if left == right:
        return left
    if keyword == "properties":
        shared = {name: {"allOf": [left[name], right[name]]} for name in left if name in right}
        return {**left, **right, **shared}
    if keyword == "required":
        return list(dict.fromkeys([*left, *right]))
    if keyword in _LOWER or keyword in _UPPER:
        return max(left, right) if keyword in _LOWER else min(left, right)
    if keyword == "enum":
        return [value for value in left if value in right]
    if keyword == "type":
        return _common_types(left, right)
    if keyword in ("items", "additionalProperties"):
        return {"allOf": [left, right]}
    if keyword not in ENFORCED:
        return left  # a validator checks both
    raise BadGrammar(f"{keyword}: two different values of this keyword apply to the same place", keyword)


def _common_types(left: str | list[str], right: str | list[str]) -> list[str]:
    a, b = ([kind] if isinstance(kind, str) else kind for kind in (left, right))
    widened = {"integer": ("integer", "number"), "number": ("number",)}  # every integer is a number
    common = [k for k in a if any(w in b for w in widened.get(k, (k,)))]
    return common + [k for k in b if k not in common and any(w in a for w in widened.get(k, (k,)))]


def schemas_of(schema: Mapping[str, Any], keyword: str, empty: bool = False) -> list[Schema]:
    parts = schema.get(keyword, [])
    if not isinstance(parts, list) or (not parts and not empty):
        raise BadGrammar(f"{keyword}: accepted is a list of schemas that is not empty", keyword)
    return parts


def mapping_of(schema: Mapping[str, Any], keyword: str) -> Mapping[str, Any]:
    value = schema.get(keyword, {})
    if not isinstance(value, Mapping):
        raise BadGrammar(f"{keyword}: accepted is an object", keyword)
    return value


def names_of(schema: Mapping[str, Any], keyword: str) -> list[str]:
    value = schema.get(keyword, [])
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise BadGrammar(f"{keyword}: accepted is a list of names", keyword)
    return value


def count_of(schema: Mapping[str, Any], keyword: str, default: int) -> int:
    value = schema.get(keyword, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value != int(value):
        raise BadGrammar(f"{keyword}: {value!r:.80}; accepted: a whole number, not negative", keyword)
    return int(value)


def bounds_of(schema: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the lower and upper bound of a number, exclusive ones included (see `is_excluded`); None for no bound."""
    bounds: dict[str, float] = {}
    for keyword in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"):
        value = schema.get(keyword)
        if value is None:
            continue
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or value != value
            or abs(value) == float("inf")
        ):
            raise BadGrammar(f"{keyword}: {value!r:.80}; accepted: a number", keyword)
        bounds[keyword] = value
    lows = [bounds[k] for k in ("minimum", "exclusiveMinimum") if k in bounds]
    highs = [bounds[k] for k in ("maximum", "exclusiveMaximum") if k in bounds]
    return max(lows, default=None), min(highs, default=None)


def is_excluded(schema: Mapping[str, Any], number: int) -> bool:
    return schema.get("exclusiveMinimum") == number or schema.get("exclusiveMaximum") == number
