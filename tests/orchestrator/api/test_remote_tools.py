"""Tools of clients reach the models of other servers, natively where a server takes them and else in words."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

import pytest
from openai import APIError, OpenAI, UnprocessableEntityError

from tests.orchestrator.api.daemon_process import Running, running_daemon
from tests.orchestrator.pool.remote.conftest import SERVER
from tests.orchestrator.pool.remote.server_answers import call, calls, error, ok
from tests.orchestrator.pool.remote.server_play import Remote

WEATHER: Final[Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
QUESTION: Final[Any] = [{"role": "user", "content": "How is it?"}]
NAMES: Final = ("native", "words", "told", "wrong", "loose")
FORM: Final[Any] = {
    "type": "json_schema",
    "json_schema": {"name": "n", "schema": {"type": "object", "required": ["n"]}},
}


@pytest.fixture(scope="module")
def remotes() -> Iterator[dict[str, Remote]]:
    """A server of another program, with a folder for each model."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, str(SERVER)], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield {name: Remote(port) for name in NAMES}
        process.kill()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, remotes: dict[str, Remote]) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("remote")
    models: dict[str, dict[str, Any]] = {
        name: {"backend": "openai", "base_url": one.url, "model": "m"} for name, one in remotes.items()
    }
    models["told"]["native_tools"] = False
    roles = {"worker": {"model": "native", "tier": "C"}, "frontdoor": {"model": "native", "tier": "A"}}
    (folder / "model_registry.yaml").write_text(json.dumps({"models": models, "roles": roles}))
    with running_daemon(folder / "home", ORCHESTRATOR_REGISTRY=str(folder / "model_registry.yaml")) as running:
        yield running


@pytest.fixture
def ai(daemon: Running) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"http://127.0.0.1:{daemon.port}/v1", api_key=daemon.token, max_retries=0) as client:
        yield client


def ask(ai: OpenAI, model: str, **more: Any) -> Any:
    return ai.chat.completions.create(**{"model": model, "messages": QUESTION, "tools": [WEATHER], **more})


def test_a_server_that_takes_tools_is_given_them(ai: OpenAI, remotes: dict[str, Remote]) -> None:
    made = calls(call("weather", "", 0), call(None, '{"city": "Oslo"}', 0), text="I look.")
    remotes["native"].plays(made, made)
    (choice,) = ask(ai, "native").choices
    assert (choice.message.content, choice.finish_reason) == ("I look.", "tool_calls")
    (called,) = choice.message.tool_calls
    assert (called.function.name, json.loads(called.function.arguments)) == ("weather", {"city": "Oslo"})
    chunks = list(ask(ai, "native", stream=True, tool_choice="required"))
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    first, second = (one["body"] for one in remotes["native"].seen())
    assert first["tools"][0]["function"]["name"] == "weather"
    assert "weather" not in json.dumps(first["messages"])
    assert second["tool_choice"] == {"type": "function", "function": {"name": "weather"}}


def test_a_call_with_wrong_arguments_is_asked_for_again(ai: OpenAI, remotes: dict[str, Remote]) -> None:
    wrong = calls(call("weather", '{"town": "Oslo"}', 0))
    remotes["wrong"].plays(wrong, calls(call("weather", '{"city": "Oslo"}', 0)), wrong, wrong)
    assert json.loads(ask(ai, "wrong").choices[0].message.tool_calls[0].function.arguments) == {"city": "Oslo"}
    again = remotes["wrong"].seen()[1]["body"]
    assert "tool_choice" not in again
    assert "'city' is a required property" in again["messages"][-1]["content"]
    with pytest.raises(UnprocessableEntityError, match="do not match"):
        ask(ai, "wrong")


def test_an_answer_that_a_server_let_break_its_schema_is_asked_for_again(
    ai: OpenAI, remotes: dict[str, Remote]
) -> None:
    remotes["loose"].plays(ok("{}"), ok('{"n": 1}'), *[ok("{}")] * 4)
    asked: dict[str, Any] = {"model": "loose", "messages": QUESTION, "response_format": FORM}
    assert ai.chat.completions.create(**asked).choices[0].message.content == '{"n": 1}'
    again = remotes["loose"].seen()[1]["body"]["messages"]
    assert "'n' is a required property" in again[-1]["content"]
    with pytest.raises(UnprocessableEntityError, match="does not obey"):
        ai.chat.completions.create(**asked)
    with pytest.raises(APIError, match="does not obey"):
        list(ai.chat.completions.create(**asked, stream=True))
    assert len(remotes["loose"].seen()) == 6, "what was streamed cannot be asked for again"


@pytest.mark.parametrize("model", ["words", "told"])
def test_a_server_that_takes_none_is_told_of_them_in_words(ai: OpenAI, remotes: dict[str, Remote], model: str) -> None:
    remotes[model].refuses(tools=error(400, "m does not support tools"))
    said = ok('{"tool": "weather", "arguments": {"city": "Oslo"}}')
    remotes[model].plays(said, said)
    for _ in range(2):
        (called,) = ask(ai, model).choices[0].message.tool_calls
        assert json.loads(called.function.arguments) == {"city": "Oslo"}
    told = [one["body"] for one in remotes[model].seen() if "tools" not in one["body"]]
    assert len(told) == 2
    assert len(remotes[model].seen()) == (3 if model == "words" else 2)
    assert "weather" in told[0]["messages"][0]["content"]
