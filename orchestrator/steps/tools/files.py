"""Read, list and write: the tools for texts."""

import asyncio
from collections.abc import Mapping
from typing import Any

from orchestrator.steps.tools.contract import Tool, ToolContext, ToolError, ToolResult

_NAME = {"type": "string", "minLength": 1, "maxLength": 200}
PATTERN: Mapping[str, Any] = {**_NAME, "description": "a shell pattern such as *.txt; all names without it"}


async def _read(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    start = arguments.get("start", 0)
    text = await asyncio.to_thread(context.workspace.read, arguments["name"])
    end = min(len(text), start + arguments.get("length", len(text)))
    if start and start >= len(text):
        raise ToolError(f"{arguments['name']} has {len(text)} characters; accepted: a start below that")
    return ToolResult(text[start:end])


async def _list(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    names = context.workspace.names(arguments.get("pattern", "*"))
    return ToolResult(list(names), "\n".join(names))


async def _write(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    context.workspace.write(arguments["name"], arguments["text"])
    return ToolResult(f"wrote {arguments['name']}, {len(arguments['text'])} characters")


READ_FILE = Tool(
    "read_file",
    "Read a file or an input, or a part of it.",
    _read,
    {
        "name": {**_NAME, "description": "the name of a file or an input"},
        "start": {"type": "integer", "minimum": 0, "description": "the first character to read, counted from 0"},
        "length": {"type": "integer", "minimum": 1, "description": "how many characters; all without it"},
    },
    ("name",),
)
LIST_FILES = Tool("list_files", "List the names that can be read.", _list, {"pattern": PATTERN})
WRITE_ARTIFACT = Tool(
    "write_artifact",
    "Write an output of this step.",
    _write,
    {"name": {**_NAME, "description": "which output"}, "text": {"type": "string", "maxLength": 1_000_000}},
    ("name", "text"),
)
