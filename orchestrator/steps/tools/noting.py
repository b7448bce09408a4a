"""Add, edit, drop and list the run's notes: the tool."""

from collections.abc import Mapping
from typing import Any

from orchestrator.steps.tools.contract import Tool, ToolContext, ToolError, ToolResult
from orchestrator.steps.tools.notes import MAX_TEXT, NoSuchNote

_NEEDS: Mapping[str, tuple[str, ...]] = {"add": ("text",), "edit": ("id", "text"), "drop": ("id",), "list": ()}


async def _notes(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    change = arguments["change"]
    if missing := [name for name in _NEEDS[change] if name not in arguments]:
        raise ToolError(f"to {change} a note takes {' and '.join(_NEEDS[change])}; missing: {', '.join(missing)}")
    try:
        match change:
            case "add":
                return ToolResult(await context.notes.add(arguments["text"]))
            case "edit":
                await context.notes.edit(arguments["id"], arguments["text"])
            case "drop":
                await context.notes.drop(arguments["id"])
    except NoSuchNote as error:
        raise ToolError(str(error)) from error
    listed = [{"id": note.id, "text": note.text, "step": note.step} for note in context.notes.all]
    return ToolResult(listed, "\n".join(f"{note.id} {note.text}" for note in context.notes.all))


NOTES = Tool(
    "notes",
    "Change or list the notes that all steps of this run share.",
    _notes,
    {
        "change": {"enum": list(_NEEDS), "description": "add takes text, edit id and text, drop id"},
        "id": {"type": "string", "minLength": 1, "maxLength": 20},
        "text": {"type": "string", "minLength": 1, "maxLength": MAX_TEXT},
    },
    ("change",),
)
