"""Servers that take tools are given them, and their calls come as text in one form. Others are noticed at once."""

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest

from orchestrator.engine.contract import Generation, Message, OfferedTool
from orchestrator.engine.tool_calls import ToolCallFinished, ToolCallParser
from orchestrator.pool.remote.errors import RemoteFailed, ToolsRefused
from orchestrator.registry.call_syntax import REMOTE
from tests.orchestrator.pool.remote.conftest import Opened
from tests.orchestrator.pool.remote.remote_asking import failing
from tests.orchestrator.pool.remote.server_answers import call, calls, error, ok
from tests.orchestrator.pool.remote.server_play import Remote

SCHEMA: Final[Mapping[str, Any]] = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER: Final = OfferedTool("weather", "Says it.", json.dumps(SCHEMA))
CLOCK: Final = OfferedTool("clock", "", "{}")
ASKED: Final = Generation(messages=(Message("user", "How is it?"),), max_tokens=9, tools=(WEATHER, CLOCK))


def read(text: str) -> list[tuple[str, Any]]:
    """Return the calls in a text."""
    parser = ToolCallParser({"weather": SCHEMA, "clock": {}}, REMOTE)
    events = [*parser.push(text), *parser.finish()]
    return [(one.name, json.loads(one.arguments)) for one in events if isinstance(one, ToolCallFinished)]


@pytest.mark.parametrize(
    "deltas",
    [
        [call("weather", "", 0), call(None, '{"city": ', 0), call(None, '"B"}', 0), call("clock", "{}", 1)],
        [call("weather", '{"city": "B"}'), call("clock", None)],
        [call("weather", None), call(None, '{"city": "B"}'), call("clock", "{}")],
        [call("weather", '{"city"', 0), call("weather", ': "B"}', 0), call("clock", "", 1)],
    ],
)
async def test_calls_become_text_as_they_come(remote: Remote, opened: Opened, deltas: list[dict[str, Any]]) -> None:
    remote.plays(calls(*deltas, text="I look. "))
    pieces: list[str] = []
    async with opened() as model:
        done = await model.generate(ASKED, pieces.append)
    assert done.text == "".join(pieces)
    assert done.text.startswith("I look.")
    assert read(done.text) == [("weather", {"city": "B"}), ("clock", {})]
    assert done.finish == "stop"
    assert len(pieces) > 3
    (seen,) = remote.seen()
    assert seen["body"]["tools"] == [
        {"type": "function", "function": {"name": "weather", "description": "Says it.", "parameters": SCHEMA}},
        {"type": "function", "function": {"name": "clock", "description": "", "parameters": {}}},
    ]
    assert "tool_choice" not in seen["body"]


@pytest.mark.parametrize(
    ("choice", "sent"),
    [("required", "required"), ("clock", {"type": "function", "function": {"name": "clock"}})],
)
async def test_a_server_is_told_what_has_to_be_called(remote: Remote, opened: Opened, choice: str, sent: Any) -> None:
    remote.plays(calls(call("clock", "{}", 0)))
    async with opened() as model:
        asked = Generation(messages=ASKED.messages, tools=ASKED.tools, tool_choice=choice)
        assert read((await model.generate(asked)).text) == [("clock", {})]
    assert remote.seen()[0]["body"]["tool_choice"] == sent


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "registry.ollama.ai/library/gemma:2b does not support tools"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        (500, "tools param requires --jinja flag"),
        (422, "Unrecognized request argument supplied: tools"),
        (400, "Tool calling is not supported for this model"),
    ],
)
async def test_a_server_that_takes_no_tools_is_not_given_any_again(
    remote: Remote, opened: Opened, status: int, message: str
) -> None:
    remote.refuses(tools=error(status, message))
    remote.plays(ok("a"))
    async with opened() as model:
        for _ in range(2):
            assert message in str(await failing(model, ASKED, ToolsRefused))
        assert (await model.generate(Generation(messages=ASKED.messages))).text == "a"
    assert len(remote.seen()) == 2


async def test_another_error_says_nothing_of_tools(remote: Remote, opened: Opened) -> None:
    remote.plays(*[error(500, "the tool shed burns")] * 9)
    async with opened() as model:
        await failing(model, ASKED, RemoteFailed)
