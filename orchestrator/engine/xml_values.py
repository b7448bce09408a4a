"""Turn the text of an argument into a value of the type that its JSON Schema allows. Pure."""

import json
from collections.abc import Mapping
from typing import Any, Final

ABSENT: Final = object()  # instead of a value: the argument is omitted
_ALL: Final = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))
_MOST_REFERENCES: Final = 64
# Chat templates write Python values like this.
_WORDS: Final[Mapping[str, Any]] = {"True": True, "False": False, "None": None}


def typed_value(text: str, schema: object, root: Mapping[str, Any]) -> Any:
    """Return the value of a text, or ABSENT. `root` is the schema into which references in `schema` point.

    The value is JSON if that has a type, other than string, that the schema allows; else it is the text. An empty text
    is ABSENT if strings are not allowed. Values are not validated.
    """
    types = _Types(root).of(schema)
    if types == {"string"}:
        return text
    plain = text.strip()
    value = _parsed(plain)
    if isinstance(value, float) and value.is_integer() and "number" not in types and "integer" in types:
        value = int(value)
    if value is not ABSENT and not isinstance(value, str) and not types.isdisjoint(_types_of(value)):
        return value
    return text if "string" in types or plain else ABSENT


def _parsed(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return ABSENT


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _types_of(value: object) -> frozenset[str]:
    match value:
        case None:
            return frozenset(("null",))
        case bool():
            return frozenset(("boolean",))
        case int():
            return frozenset(("integer", "number"))
        case float():
            return frozenset(("number",))
        case str():
            return frozenset(("string",))
        case list():
            return frozenset(("array",))
    return frozenset(("object",))


class _Types:
    # Each reference is followed once, as many may point to the same place.

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._referred: dict[str, frozenset[str]] = {}

    def of(self, schema: object) -> frozenset[str]:
        if not isinstance(schema, Mapping):
            return _ALL
        allowed = _ALL
        if isinstance(target := schema.get("$ref"), str):
            allowed &= self._referred_to(target)
        if "const" in schema:
            allowed &= _types_of(schema["const"])
        if isinstance(values := schema.get("enum"), list):
            allowed &= frozenset().union(*map(_types_of, values))
        if isinstance(named := schema.get("type"), str | list):
            names = frozenset((named,) if isinstance(named, str) else filter(_is_text, named))
            allowed &= names | ({"integer"} if "number" in names else frozenset())
        for keyword in ("anyOf", "oneOf"):
            if isinstance(parts := schema.get(keyword), list):
                allowed &= frozenset().union(*map(self.of, parts))
        for part in schema["allOf"] if isinstance(schema.get("allOf"), list) else ():
            allowed &= self.of(part)
        return allowed

    def _referred_to(self, target: str) -> frozenset[str]:
        if target not in self._referred and len(self._referred) == _MOST_REFERENCES:
            return _ALL
        if target not in self._referred:
            self._referred[target] = _ALL  # while it is followed: a reference to itself says nothing
            self._referred[target] = self.of(_resolved(target, self._root))
        return self._referred[target]


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _resolved(target: str, root: Mapping[str, Any]) -> object:
    node: object = root
    for key in target.removeprefix("#").split("/")[1:]:
        node = node.get(key.replace("~1", "/").replace("~0", "~")) if isinstance(node, Mapping) else None
    # None for references to other documents.
    return node if target.startswith("#") else None
