"""Propose procedures: the plan is kept and shown, and a person decides whether it is executed."""

from collections.abc import Mapping
from typing import Any

from orchestrator.run.steps.tools.contract import Tool, ToolContext, ToolResult


async def _procedure(context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    notice = await context.propose(arguments["name"], arguments.get("inputs", {}))
    return ToolResult(notice, notice)


PROCEDURE = Tool(
    "procedure",
    "Plan a maintenance procedure. It changes nothing: the plan waits for the approval of a person.",
    _procedure,
    {
        "name": {"type": "string", "minLength": 1, "maxLength": 64, "description": "as `procedures list` names it"},
        "inputs": {"type": "object", "maxProperties": 100, "description": "its inputs by name"},
    },
    ("name",),
)
