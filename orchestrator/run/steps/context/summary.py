"""The summary of a long step: its schema, and how the model's answer is read."""

from typing import Any

from pydantic_core import from_json

from orchestrator.task.taskir.json_text import compact_json
from orchestrator.task.taskir.validation import OutputSchema

# Limits of a summary: characters of a line, lines of `findings` and of `open_points`, tokens of all.
LINE = 160
LINES = 6
TOKENS = 768

_LINES: dict[str, Any] = {"type": "array", "maxItems": LINES, "items": {"type": "string", "maxLength": LINE}}

# The model's answer; code adds the task and the number of condensations.
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

_FORM = OutputSchema(SUMMARY)


def summary_text(task: str, condensations: int, answer: str, *, cut_off: bool = False) -> str:
    """Return the summary that stays in the conversation, from the model's `answer`.

    A cut-off answer counts as far as it goes. Raises `SchemaMismatch` if the answer does not match the schema, or was
    cut off before it came to the findings.
    """
    summary = _partial_summary(answer) if cut_off else _FORM.read(answer)
    assert isinstance(summary, dict), "the form asks for an object"
    return compact_json({"task": task[:LINE], "condensations": condensations, **summary})


def _partial_summary(answer: str) -> object:
    try:
        summary = from_json(answer, allow_partial="trailing-strings")
    except ValueError:
        summary = None
    if isinstance(summary, dict) and "findings" in summary:
        summary.setdefault("open_points", [])
    _FORM.check(summary)
    return summary
