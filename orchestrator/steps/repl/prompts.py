"""Tell the model of a REPL step what it is to do and what its code can use."""

import re
from collections.abc import Sequence

from orchestrator.steps.answer import strip_fence
from orchestrator.steps.prompt import Input
from orchestrator.steps.tools.actions import described
from orchestrator.steps.tools.contract import Tool

GLIMPSE = 200
"""Characters of an input that the model is shown; it reads on by `peek`."""

_HOW = """\
Write Python. Each answer is one piece of code, run in an interpreter that keeps its variables; you see what it prints.
inputs                       the texts below, by name
artifacts                    your outputs, by name: artifacts[name] = text writes one
peek(name, start=0, length=2000), grep(pattern, name=None)
llm_call(prompt, role=None, persona=None, inputs={name: text})    asks a model, gives its text
llm_batch([prompt, ...], role=None, persona=None)                 asks many at once, gives a list
final(value)                 ends the task with its result"""

_FENCED = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)


def instructions(action: str, inputs: Sequence[Input], outputs: Sequence[str], tools: Sequence[Tool]) -> str:
    """Return what stands in the place of the action."""
    lines = [_HOW]
    if tools:
        lines += ["tool(name, ...)              calls one of:", described(tools)]
    lines += [f"input {item.name} ({len(item.text)} characters): {_glimpse(item.text)}" for item in inputs]
    result = f"Outputs: {', '.join(outputs)}" if outputs else "No outputs"
    return "\n".join([action, "", *lines, result])


def code_in(answer: str) -> str:
    """Return the code of an answer: what its first fence encloses, or all of it where there is no fence."""
    fenced = _FENCED.search(answer)
    return fenced[1].strip("\n") if fenced else strip_fence(answer)


def _glimpse(text: str) -> str:
    line = " ".join(text[:GLIMPSE].split())
    return f"{line} …" if len(text) > GLIMPSE else line
