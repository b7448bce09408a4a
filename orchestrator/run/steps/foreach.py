"""The lists of `foreach` steps: split for the children, joined from their outputs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.run.steps.attempt import unusable_input
from orchestrator.task.events import ListReading
from orchestrator.task.taskir.fields import JsonObject
from orchestrator.task.taskir.json_text import compact_json, read_json
from orchestrator.task.taskir.models import Step

# The schema of a list that a `foreach` runs over.
LIST_OF_TEXTS: Final[JsonObject] = {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}

MAX_CHILDREN = 10_000
MAX_LINE: Final = 200  # characters; a text with longer lines has no line for each item
LEAST_ITEMS: Final = 3  # between commas; a text with fewer is a sentence
MAX_WORDS: Final = 3  # of an item between commas

# A line that starts an item of a plain-text list.
_MARKED = re.compile(r" ?(?:[-*+•]|\d{1,4}[.)])\s+(.*\S)")

# A text with lines that start like this is a document, and its lines are no items.
_MARKUP: Final = ("#", "|", ">", "```")


@dataclass(frozen=True, slots=True)
class Items:
    texts: tuple[str, ...]
    read_as: ListReading


def items_of(name: str, text: str) -> Items:
    """Return the items of a list: strings of a JSON list as they are, other values as compact JSON.

    Models often write other lists, which are read too: bullets, numbers, a line for each item, items between commas,
    or a JSON object that holds only one list. Any other text is one item; an empty text has none. `name` is for
    errors. Raises `AttemptError` for more than `MAX_CHILDREN` items.
    """
    text = text.strip()
    value, problems = read_json(text)
    items = Items((text,), "whole") if text else Items((), "text")
    if problems and (plain := _plain_items(text)):
        items = Items(tuple(plain), "text")
    elif isinstance(value, list):
        items = Items(_texts(value), "json")
    elif isinstance(value, dict) and len(value) == 1 and isinstance(inner := next(iter(value.values())), list):
        items = Items(_texts(inner), "text")
    if len(items.texts) > MAX_CHILDREN:
        raise unusable_input(f"{name} has {len(items.texts)} items; a step may run over {MAX_CHILDREN}")
    return items


def _texts(values: Sequence[object]) -> tuple[str, ...]:
    return tuple(value if isinstance(value, str) else compact_json(value) for value in values)


def _plain_items(text: str) -> list[str]:
    if not text or text[0] in "[{":
        return []
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if marked := _marked_items(text):
        return marked
    if len(lines) > 1 and all(len(line) <= MAX_LINE and not line.startswith(_MARKUP) for line in lines):
        return lines[1:] if lines[0].endswith(":") and len(lines) > 2 else lines
    between_commas = [item.strip(" .") for item in text.split(",")]
    short = all(0 < len(item.split()) <= MAX_WORDS for item in between_commas)
    if len(between_commas) >= LEAST_ITEMS and short and ":" not in text:  # a colon makes it a statement about something
        return between_commas
    return []


def _marked_items(text: str) -> list[str]:
    # One line may stand before the list. An indented line belongs to the item above it.
    items: list[str] = []
    before = 0
    for line in filter(str.strip, text.splitlines()):
        if (marked := _MARKED.match(line)) is not None:
            items.append(marked[1])
        elif items and line[:2].isspace():
            items[-1] += f"\n{line.strip()}"
        else:
            before += 1
            if items or before > 1:
                return []
    return items


def writes_text(step: Step) -> bool:
    """Whether a model writes the answer in any form, so that it may be a list."""
    return not step.acts and step.output_schema is None


def gather(step: Step, children: Sequence[Mapping[str, bytes]]) -> dict[str, bytes]:
    """Return the outputs of a `foreach` step: for each, a JSON list of what its children made, in order.

    Items are text, or JSON if the step has an `output_schema`. `children` are the outputs of each; names end in `[i]`.
    """
    lists: dict[str, list[object]] = {name: [] for name in step.outputs}
    for index, outputs in enumerate(children):
        for name, values in lists.items():
            text = outputs[f"{name}[{index}]"].decode()
            values.append(text if step.output_schema is None else read_json(text)[0])
    return {name: compact_json(values).encode() for name, values in lists.items()}
