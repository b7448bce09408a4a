"""Tell the model of a step that uses tools what it is to do and how."""

from collections.abc import Sequence

from orchestrator.steps.tools.contract import Tool

_HOW = """\
Answer with one JSON object at a time:
{"tool": NAME, "arguments": {...}} calls a tool; its result comes back under an id such as D1
{"prune": [ID, ...]} drops results that are not needed any more
{"finish": ANSWER} ends the task; with "documents": [ID, ...] these results are handed on with the answer
Tools:"""


def instructions(action: str, tools: Sequence[Tool]) -> str:
    """Return what stands in the place of the action."""
    return f"{action}\n\n{_HOW}\n{described(tools)}"


def described(tools: Sequence[Tool]) -> str:
    """Return one line for each tool: its name, its arguments (with a `?` those that may be left out), what it does."""
    return "\n".join(f"  {tool.name}({', '.join(_parameters(tool))})  {tool.description}" for tool in tools)


def _parameters(tool: Tool) -> list[str]:
    return [name if name in tool.required else f"{name}?" for name in tool.properties]
