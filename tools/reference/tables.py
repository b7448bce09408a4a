"""Describe documents by Markdown tables of their keys, from the JSON Schemas of their models.

An object of a document has a section of its own, whose title is its place there: `plan.steps[]` is an item of the list
`steps`, `models.NAME` an entry of the mapping `models`.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

Schema = Mapping[str, Any]
REFERENCE = "#/$defs/"
WITH_PLURAL = ("text", "number", "name", "id")  # how kinds end that get an s


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def anchor(title: str) -> str:
    """Return the name that GitHub gives a heading for links."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def sections(document: type[BaseModel], kinds: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield the text and the table of a document, and a section for each object in it.

    `kinds` has short names for texts, by the pattern that they match.
    """
    schema = document.model_json_schema()
    yield from _Sections(schema.get("$defs", {}), kinds or {}).described("", schema)


class _Sections:
    def __init__(self, objects: Mapping[str, Schema], kinds: Mapping[str, str]) -> None:
        self._objects = objects
        self._kinds = kinds
        self._places: dict[str, str] = {}  # of the objects by name; one that is in several has its section at the first

    def described(self, place: str, schema: Schema) -> Iterator[str]:
        properties: Mapping[str, Schema] = schema["properties"]
        below: dict[str, str] = {}
        for key, value in properties.items():
            for name, there in _objects_in(f"{place}.{key}".removeprefix("."), value):
                if name not in self._places:
                    self._places[name] = below[name] = there
        yield from (f"{paragraph}\n\n" for paragraph in _paragraphs(schema))
        required = schema.get("required", ())
        rows = (self._row(key, value, is_required=key in required) for key, value in properties.items())
        yield table(("key", "type", "default", "meaning"), rows)
        for name, there in below.items():
            yield f"\n### `{there}`\n\n"
            yield from self.described(there, self._objects[name])

    def _row(self, key: str, schema: Schema, *, is_required: bool) -> tuple[str, ...]:
        shown = schema if "description" in schema else self._objects[schema["$ref"].removeprefix(REFERENCE)]
        return f"`{key}`", self._kind(schema), "required" if is_required else _default(schema), _paragraphs(shown)[0]

    def _kind(self, schema: Schema) -> str:
        match schema:
            case {"$ref": str(reference)}:
                place = self._places[reference.removeprefix(REFERENCE)]
                return f"[`{place}`](#{anchor(place)})"
            case {"anyOf": choices}:
                return " or ".join(self._kind(choice) for choice in choices if choice.get("type") != "null")
            case {"type": "array", "items": items}:
                return f"list{_limits(schema, 'Items')} of {_plural(self._kind(items))}"
            case {"patternProperties": patterns}:
                (value,) = patterns.values()
                return f"mapping{_limits(schema, 'Properties')} of names to {_plural(self._kind(value))}"
            case {"additionalProperties": dict(value)}:
                return f"mapping of texts to {_plural(self._kind(value))}"
            case {"pattern": pattern}:
                return self._kinds.get(pattern, f"text that matches `{pattern}`")
        return _plain_kind(schema)


def _objects_in(place: str, schema: Schema) -> Iterator[tuple[str, str]]:
    """Yield the names and places of the objects in a value."""
    match schema:
        case {"$ref": str(reference)}:
            yield reference.removeprefix(REFERENCE), place
        case {"anyOf": choices}:
            for choice in choices:
                yield from _objects_in(place, choice)
        case {"items": items}:
            yield from _objects_in(f"{place}[]", items)
        case {"patternProperties": patterns}:
            for value in patterns.values():
                yield from _objects_in(f"{place}.NAME", value)


def _plain_kind(schema: Schema) -> str:
    match schema:
        case {"enum": [*values, last]}:
            return f"{', '.join(f'`{value}`' for value in values)} or `{last}`"
        case {"type": "object"}:
            return f"object{_limits(schema, 'Properties', ' keys')}"
        case {"type": "boolean"}:
            return "true or false"
        case {"type": "string"}:
            return f"text{_limits(schema, 'Length', ' characters')}"
        case {"type": "integer"}:
            return f"whole number{_bounds(schema)}"
        case {"type": "number"}:
            return f"number{_bounds(schema)}"
    return "anything"


def _plural(kind: str) -> str:
    head, limits, rest = kind.partition(" (")
    return f"{head}s{limits}{rest}" if head.endswith(WITH_PLURAL) else kind


def _paragraphs(schema: Schema) -> list[str]:
    return [" ".join(paragraph.split()) for paragraph in schema["description"].split("\n\n")]


def _limits(schema: Schema, of: str, unit: str = "") -> str:
    low, high = schema.get(f"min{of}", 0), schema.get(f"max{of}")
    if high is None:
        return ""
    return f" ({low:,} to {high:,}{unit})" if low else f" (up to {high:,}{unit})"


def _bounds(schema: Schema) -> str:
    low, above, high = (schema.get(name) for name in ("minimum", "exclusiveMinimum", "maximum"))
    if low is not None and high is not None:
        return f" ({low:,} to {high:,})"
    words = {"at least": low, "above": above, "at most": high}
    limits = ", ".join(f"{word} {limit:,}" for word, limit in words.items() if limit is not None)
    return f" ({limits})" if limits else ""


def _default(schema: Schema) -> str:
    value = schema.get("default")
    return "" if value is None or "$ref" in schema else f"`{json.dumps(value, ensure_ascii=False)}`"
