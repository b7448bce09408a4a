"""Turn errors in TaskIR documents and other JSON files into problems: JSON pointer, value, and what is accepted."""

import difflib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from orchestrator.errors import InputError, Problem
from orchestrator.task.taskir.fields import PATTERN_DESCRIPTIONS
from orchestrator.task.taskir.models import TaskIR

if TYPE_CHECKING:  # its import takes longer than that of all of this package
    from jsonschema.exceptions import SchemaError

MAX_PROBLEMS = 50
_SHOWN = 60
_MANY = 2_000
_TYPES = {
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "an object",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "string_type": "text",
    "tuple_type": "a list",
}
_COUNTS = {
    "greater_than": "above {gt:g}",
    "greater_than_equal": "from {ge} on",
    "less_than_equal": "up to {le}",
    "string_too_long": "up to {max_length} characters",
    "string_too_short": "at least {min_length} character",
    "too_long": "up to {max_length} items",
    "too_short": "at least {min_length} item",
}


def schema_problem(error: "SchemaError") -> str:
    if list(error.absolute_path)[-1:] == ["items"] and isinstance(error.instance, list):
        return "items is a list, as draft-07 writes tuples; since 2020-12 that is prefixItems"
    return error.message


class InvalidTask(InputError):
    """The document is not a TaskIR document, or no run could carry it out."""


def pointer(path: Iterable[object]) -> str:
    """Return the JSON pointer (RFC 6901) of a path of keys and indices; the whole document is `/`."""
    parts = [str(part).replace("~", "~0").replace("/", "~1") for part in path]
    return "/" + "/".join(part if len(part) <= _SHOWN else part[:_SHOWN] + "…" for part in parts)


def format_value(value: object) -> str:
    """Return a value as short JSON for a message."""
    if isinstance(value, str):
        # Cut before it is formatted: fast for long text.
        return json.dumps(value if len(value) <= _SHOWN else value[:_SHOWN] + "…", ensure_ascii=not _printable(value))
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int) and abs(value) >= 10**_SHOWN:
        return "a whole number of more than 60 digits"
    return str(value)[:_SHOWN]


def _printable(value: str) -> bool:
    return value[:_SHOWN].isprintable()


def nearest(name: str, known: Collection[str]) -> str:
    """Return the known name closest to `name`, or an empty string if none is close.

    Among more than 2,000 names, only those with the same first character and similar length count.
    """
    if len(name) > 4 * _SHOWN:
        return ""
    candidates: Iterable[str] = known
    if len(known) > _MANY:
        alike = (candidate for candidate in known if abs(len(candidate) - len(name)) < 2 and candidate[:1] == name[:1])
        candidates = [candidate for candidate, _ in zip(alike, range(_MANY), strict=False)]
    closest = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)
    return closest[0] if closest else ""


def format_known_names(known: Collection[str], wrong: str = "") -> str:
    """Return the accepted names for a message: the one nearest to `wrong` first, others if there are few."""
    if not known:
        return "none: there are none here"
    near = nearest(wrong, known) if wrong else ""
    listed = sorted(known)[:20] if len(known) <= _MANY else []
    other_names = ", ".join(name for name in listed if name != near)
    more = ", …" if listed and len(known) > len(listed) else ""
    if near:
        return f"{near!r}?" + (f" ({other_names}{more})" if other_names else "")
    return other_names + more if other_names else f"one of {len(known)} names"


def invalid_task(problems: Iterable[Problem]) -> InvalidTask:
    """Return the error for these problems, with the first fifty of them."""
    first = list(islice(problems, MAX_PROBLEMS + 1))
    if len(first) > MAX_PROBLEMS:
        first[-1] = Problem("/", f"there are more problems; these are the first {MAX_PROBLEMS}")
    return InvalidTask(*first)


def from_validation(error: ValidationError, document: object) -> InvalidTask:
    return invalid_task(problems_of(error, document, TaskIR))


def problems_of(error: ValidationError, document: object, form: type[BaseModel]) -> Iterator[Problem]:
    """Yield what is wrong with a parsed JSON document that does not have a form."""
    items = (item for item in error.errors(include_url=False) if not _is_consequence(item))
    return (_problem(item, document, form) for item in items)


def _is_consequence(item: Mapping[str, Any]) -> bool:
    # Pydantic drops wrong items first.
    return item["type"] == "too_short" and bool(len(item["input"]) >= item["ctx"]["min_length"])


def _problem(item: Mapping[str, Any], document: object, form: type[BaseModel]) -> Problem:
    path, model = _locate(item["loc"], document, form)
    where, kind = pointer(path), item["type"]
    if kind == "extra_forbidden":
        key = str(path[-1])
        return Problem(where, f"unknown field {format_value(key)}", format_known_names(list(model.model_fields), key))
    if kind == "missing":
        return Problem(pointer(item["loc"]), "this field is required, but missing")
    if kind == "value_error":
        return Problem(where, str(item["ctx"]["error"]))
    return Problem(where, f"{format_value(item['input'])} is refused", _accepted(item))


def _accepted(item: Mapping[str, Any]) -> str:
    context = item.get("ctx", {})
    kind = item["type"]
    if kind == "string_pattern_mismatch":
        return PATTERN_DESCRIPTIONS[context["pattern"]]
    if kind == "literal_error":
        return str(context["expected"])
    if kind in _COUNTS:
        return _COUNTS[kind].format_map(context)
    return _TYPES.get(kind, str(item["msg"]))


def _locate(
    loc: tuple[int | str, ...], document: object, form: type[BaseModel]
) -> tuple[list[int | str], type[BaseModel]]:
    # Follow pydantic's location as far as the document goes; the model is that of the object there.
    path: list[int | str] = []
    model = form
    holder, value = model, document
    for part in loc:
        if isinstance(value, dict) and part in value:
            holder, value = model, value[part]
            field = model.model_fields.get(str(part))
            model = (_model_of(field.annotation) if field else None) or model
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            break
        path.append(part)
    return path, holder


def _model_of(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (dict, tuple, Annotated, Union, UnionType):
        return next(filter(None, map(_model_of, get_args(annotation))), None)
    return None
