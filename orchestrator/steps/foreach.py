"""Take a list apart for the children of a `foreach` step, and join what the children made into lists."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from orchestrator.events import Failure, FailureKind
from orchestrator.steps.errors import AttemptError, unusable_input
from orchestrator.taskir import Step
from orchestrator.taskir.json_text import compact_json, read_json

MAX_CHILDREN = 10_000
MAX_LINE: Final = 200
"""A text with longer lines has no line for each item."""
LEAST_ITEMS: Final = 3
"""A text with fewer items between commas is a sentence."""
MAX_WORDS: Final = 3
"""An item between commas has no more words."""

_KINDS: Final[Mapping[object, str]] = {dict: "an object", str: "a text", bool: "true or false", type(None): "null"}
"""What JSON calls values that are neither lists nor numbers."""
_MARKED = re.compile(r" ?(?:[-*+•]|\d{1,4}[.)])\s+(.*\S)")
"""A line that begins an item of a list in plain text."""


def items_of(name: str, text: str) -> tuple[str, ...]:
    """Return the items of a list as texts: of a JSON list strings as they are, and anything else as compact JSON.

    A model that is asked for a list often writes another one, which is read, too: a bulleted or numbered list, a line
    for each item, or items between commas. Any other text is a list of one item. `name` is what errors call the list.
    Raises `AttemptError` for a text that begins as JSON and is no list, and for more than `MAX_CHILDREN` items.
    """
    value, problems = read_json(text.strip())
    if problems and (items := _plain_items(text)):
        value, problems = items, []
    if problems:
        raise _no_list(f"{name} is no JSON list to run over: {problems[0]}")
    if not isinstance(value, list):
        raise _no_list(f"{name} is no JSON list to run over, but {_KINDS.get(type(value), 'a number')}")
    if len(value) > MAX_CHILDREN:
        raise unusable_input(f"{name} has {len(value)} items; a step may run over {MAX_CHILDREN}")
    return tuple(item if isinstance(item, str) else compact_json(item) for item in value)


def _plain_items(text: str) -> list[str]:
    """Return the items of a list that is not JSON; none for an empty text, and for one that begins as JSON."""
    text = text.strip()
    if not text or text[0] in "[{":
        return []
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if marked := _marked_items(text):
        return marked
    if len(lines) > 1 and all(len(line) <= MAX_LINE for line in lines):
        return lines[1:] if lines[0].endswith(":") and len(lines) > 2 else lines
    between_commas = [item.strip(" .") for item in text.split(",")]
    if len(between_commas) >= LEAST_ITEMS and all(0 < len(item.split()) <= MAX_WORDS for item in between_commas):
        return between_commas
    return [text]


def _marked_items(text: str) -> list[str]:
    """Return the items of a bulleted or numbered list, without marks; empty for any other text.

    One line may stand before the list. A line that is indented belongs to the item above it.
    """
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


def gather(step: Step, children: Sequence[Mapping[str, bytes]]) -> dict[str, bytes]:
    """Return the outputs of a `foreach` step: for each a JSON list of what its children made, in order.

    What a child made is text, or JSON where the step has an `output_schema`. `children` maps each child's outputs in
    the order of the step's outputs; their names end in `[i]`.
    """
    lists: dict[str, list[object]] = {name: [] for name in step.outputs}
    for index, outputs in enumerate(children):
        for name, values in lists.items():
            text = outputs[f"{name}[{index}]"].decode()
            values.append(text if step.output_schema is None else read_json(text)[0])
    return {name: compact_json(values).encode() for name, values in lists.items()}


def _no_list(message: str) -> AttemptError:
    return AttemptError(Failure(FailureKind.SCHEMA, message, final=True))
