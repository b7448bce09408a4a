"""Which tools may be called, what is wrong with a call, and how a model without a template for tools is told."""

from typing import Any

import pytest

from orchestrator.api.openai.tools import ClientTool, ClientTools
from orchestrator.errors import InputError

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER, CLOCK = ClientTool("weather", "", PARAMETERS), ClientTool("clock", "Tells the time.", {})


def allowed(mode: str, *names: str) -> dict[str, Any]:
    return {"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": name} for name in names]}


@pytest.mark.parametrize(
    ("choice", "names", "forced"),
    [
        (None, ["weather", "clock"], False),
        ("auto", ["weather", "clock"], False),
        ("none", [], False),
        ("required", ["weather", "clock"], True),
        ({"type": "function", "name": "clock"}, ["clock"], True),
        ({"type": "function", "function": {"name": "clock"}}, ["clock"], True),
        (allowed("auto", "clock"), ["clock"], False),
        (allowed("required", "clock", "weather"), ["weather", "clock"], True),
        ({"type": "allowed_tools", "allowed_tools": allowed("required", "clock")}, ["clock"], True),
    ],
)
def test_a_choice_leaves_some_tools(choice: Any, names: list[str], forced: bool) -> None:
    toolbox = ClientTools.of([WEATHER, CLOCK], choice)
    assert [tool.name for tool in toolbox.tools] == names
    assert toolbox.forced == forced
    assert bool(toolbox.instructions) == bool(names)
    assert (toolbox.schema is not None) == forced


@pytest.mark.parametrize(
    "choice", ["some", {"type": "function", "name": "moon"}, allowed("auto", "moon"), allowed("some")]
)
def test_any_other_choice_is_refused(choice: Any) -> None:
    with pytest.raises(InputError, match="tool_choice"):
        ClientTools.of([WEATHER, CLOCK], choice)


def test_a_choice_without_tools_says_that_there_are_none() -> None:
    with pytest.raises(InputError, match="'required' needs tools, and there are none; accepted: none, auto"):
        ClientTools.of([], "required")


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("weather", '{"city": "Zürich"}', ""),
        ("clock", "{}", ""),
        ("weather", '{"town": "B"}', "do not match"),
        ("weather", '{"city": ', "do not match"),
        ("clock", "[]", "do not match"),
        ("moon", "{}", "there is no tool"),
    ],
)
def test_what_is_wrong_with_a_call(name: str, arguments: str, problem: str) -> None:
    found = ClientTools.of([WEATHER, CLOCK], None).problem(name, arguments)
    assert problem in found
    assert bool(found) == bool(problem)
