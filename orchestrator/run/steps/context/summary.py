"""The summary of a long step: what it has to hold, how the model is asked for it, and how its answer is read."""

from typing import Any

from pydantic_core import from_json

from orchestrator.run.gates import OutputSchema
from orchestrator.task.taskir.json_text import compact_json

LINE = 160
LINES = 6
TOKENS = 768
"""Tokens that a summary may take; its `findings` and `open_points` have at most `LINES` lines of `LINE` characters."""

_LINES: dict[str, Any] = {"type": "array", "maxItems": LINES, "items": {"type": "string", "maxLength": LINE}}

SUMMARY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "plan_state": {"type": "string", "maxLength": LINE},
        "findings": _LINES,
        "open_points": _LINES,
    },
    "required": ["plan_state", "findings", "open_points"],
    "additionalProperties": False,
}
"""The JSON Schema of the model's answer. The task and the number of condensations are added to it by code."""

_FORM = OutputSchema(SUMMARY)


def summary_text(task: str, condensations: int, answer: str, *, cut_off: bool = False) -> str:
    """Return the summary that stays in the conversation, made of the model's `answer`.

    An answer that was cut off counts as far as it goes. Raises `SchemaMismatch` for an answer that does not match the
    schema, and for one that was cut off before it came to the findings.
    """
    said = _begun(answer) if cut_off else _FORM.read(answer)
    assert isinstance(said, dict), "the form asks for an object"
    return compact_json({"task": task[:LINE], "condensations": condensations, **said})


def _begun(answer: str) -> object:
    """Return the JSON that the beginning of an answer holds."""
    try:
        said = from_json(answer, allow_partial="trailing-strings")
    except ValueError:
        said = None
    if isinstance(said, dict) and "findings" in said:
        said.setdefault("open_points", [])
    _FORM.check(said)
    return said
