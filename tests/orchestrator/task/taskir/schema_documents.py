"""Generate documents from a JSON Schema: all that the schema allows, as far as the keywords go that ours uses.

A keyword it does not know is an error, so that the schema cannot grow a rule that the tests do not generate.
"""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_NOTES = {"$schema", "$comment", "$defs", "title", "description", "default"}
_KEYWORDS = {
    "string": {"type", "minLength", "maxLength", "pattern", "enum"},
    "integer": {"type", "minimum", "maximum"},
    "number": {"type", "exclusiveMinimum", "maximum"},
    "array": {"type", "items", "minItems", "maxItems"},
    "object": {"type", "properties", "required", "additionalProperties", "maxProperties"},
    "boolean": {"type"},
    "null": {"type"},
}


def documents(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for the documents of `schema`."""
    return _values(schema, schema.get("$defs", {}))


def _values(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    rules = {key: value for key, value in schema.items() if key not in _NOTES}
    if not rules:
        return ANYTHING
    if set(rules) == {"$ref"}:
        return _values(defs[rules["$ref"].removeprefix("#/$defs/")], defs)
    if set(rules) == {"anyOf"}:
        return st.one_of([_values(one, defs) for one in rules["anyOf"]])
    kind = rules["type"]
    unknown = set(rules) - _KEYWORDS[kind]
    if unknown:
        raise NotImplementedError(f"{unknown} of {kind}")
    if kind == "object":
        return _objects(rules, defs)
    if kind == "array":
        most = min(rules["maxItems"], rules.get("minItems", 0) + 3)
        return st.lists(_values(rules["items"], defs), min_size=rules.get("minItems", 0), max_size=most)
    return _leaves(kind, rules)


def _objects(rules: Mapping[str, Any], defs: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    if rules["additionalProperties"] is True:
        return st.dictionaries(st.text(), ANYTHING, max_size=3)
    fields = {name: _values(one, defs) for name, one in rules["properties"].items()}
    required = {name: fields.pop(name) for name in rules.get("required", ())}
    return st.fixed_dictionaries(required, optional=fields)


def _leaves(kind: str, rules: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    if "enum" in rules:
        return st.sampled_from(rules["enum"])
    if kind == "string":
        least, most = rules.get("minLength", 0), rules.get("maxLength", 10**6)
        if "pattern" not in rules:
            return st.text(min_size=least, max_size=min(most, 30))
        # ECMA's `$` is only the end, where Python's may stand before a last line break too.
        pattern = rules["pattern"].removesuffix("$") + r"\Z"
        return st.from_regex(pattern).filter(lambda text: least <= len(text) <= most)
    if kind == "integer":
        return st.integers(rules["minimum"], rules["maximum"])
    if kind == "number":
        return st.floats(rules["exclusiveMinimum"], rules["maximum"], exclude_min=True) | st.integers(
            rules["exclusiveMinimum"] + 1, rules["maximum"]
        )
    return st.booleans() if kind == "boolean" else st.none()
