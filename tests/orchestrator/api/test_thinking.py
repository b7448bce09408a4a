"""Thoughts of a model come apart from its answers: in chats, responses and runs, whole and streamed."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from orchestrator.api.openai.protocol import ThinkingBody, requested_thinking
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.record.report import build_report
from orchestrator.run.record.view import RunView
from tests.orchestrator.api.daemon_process import Running, executed, running_daemon
from tests.orchestrator.engine.thinking_models import brief, endless

MESSAGES = [{"role": "user", "content": "hi"}]
REGISTRY = """
models:
  brief: {file: brief.gguf, context: 512, slots: 2, threads: 1}
  endless: {file: endless.gguf, context: 512, slots: 2, threads: 1, thinking: 7}
roles:
  worker: {model: brief, tier: C, system: Be brief., max_tokens: 16}
  silent: {model: endless, tier: C, system: Be brief., max_tokens: 16, thinking: off}
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("thinking")
    brief(folder / "brief.gguf")
    endless(folder / "endless.gguf")
    (folder / "model_registry.yaml").write_text(REGISTRY)
    registry = str(folder / "model_registry.yaml")
    with running_daemon(folder / "home", ORCHESTRATOR_REGISTRY=registry) as running:
        yield running


@pytest.fixture
def client(daemon: Running) -> Iterator[httpx2.Client]:
    with daemon.client() as opened:
        yield opened


def chat(client: httpx2.Client, **body: Any) -> dict[str, Any]:
    answer = client.post("/v1/chat/completions", json={"model": "worker", "messages": MESSAGES, **body})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def events(client: httpx2.Client, path: str, **body: Any) -> list[dict[str, Any]]:
    answer = client.post(path, json={"model": "worker", "stream": True, **body})
    assert answer.status_code == 200, answer.text
    data = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    return [json.loads(one) for one in data if one != "[DONE]"]


def test_a_chat_has_its_thoughts_beside_its_answer(client: httpx2.Client) -> None:
    answer = chat(client)
    message, usage = answer["choices"][0]["message"], answer["usage"]
    assert (message["reasoning_content"], message["content"]) == ("hmah", "42")
    assert usage["completion_tokens"] - usage["completion_tokens_details"]["reasoning_tokens"] == 2


def test_a_streamed_chat_has_two_channels(client: httpx2.Client) -> None:
    chunks = events(client, "/v1/chat/completions", messages=MESSAGES)
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "hmah"
    assert "".join(delta.get("content", "") for delta in deltas) == "42"


@pytest.mark.parametrize(
    "options",
    [
        {"thinking": "off"},
        {"thinking": {"type": "disabled"}},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"reasoning_effort": "none"},
    ],
)
def test_a_request_switches_thinking_off(client: httpx2.Client, options: dict[str, Any]) -> None:
    message = chat(client, **options)["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == (None, "42")


def test_request_role_and_model_say_how_much(client: httpx2.Client) -> None:
    def thought(**body: Any) -> str | None:
        found: str | None = chat(client, **body)["choices"][0]["message"]["reasoning_content"]
        return found

    assert thought(model="endless") == "hm" * 7
    assert thought(model="endless", thinking={"type": "enabled", "budget_tokens": 3}) == "hm" * 3
    assert thought(model="silent") is None
    assert thought(model="silent", thinking=4) == "hm" * 4


def test_a_limit_of_tokens_is_for_thoughts_and_answer(client: httpx2.Client) -> None:
    answer = chat(client, model="endless", thinking="on", max_tokens=20)
    assert answer["choices"][0]["message"]["content"] == "42"
    assert answer["usage"]["completion_tokens"] <= 20


def test_a_schema_is_for_the_answer(client: httpx2.Client) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": ["yes"]}}}
    message = chat(client, response_format=form)["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("hmah", '"yes"')


@pytest.mark.parametrize("options", [{}, {"thinking": {"type": "enabled", "budget_tokens": 8}}])
def test_the_tokens_of_a_message_are_counted_as_it_is_asked_to_think(
    client: httpx2.Client, options: dict[str, Any]
) -> None:
    asked = {"model": "worker", "messages": MESSAGES, **options}
    counted = client.post("/v1/messages/count_tokens", json=asked).json()["input_tokens"]
    usage = client.post("/v1/messages", json={**asked, "max_tokens": 24}).json()["usage"]
    assert counted == usage["input_tokens"] + usage.get("cache_read_input_tokens", 0)


def test_a_message_has_a_block_of_thoughts_where_they_are_asked_for(client: httpx2.Client) -> None:
    asked: dict[str, Any] = {"model": "endless", "messages": MESSAGES, "max_tokens": 24}

    def blocks(**more: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = client.post("/v1/messages", json={**asked, **more}).json()["content"]
        return found

    budget = {"type": "enabled", "budget_tokens": 3}
    assert blocks() == [{"type": "text", "text": "42"}]
    assert blocks(thinking={"type": "disabled"}) == blocks()
    thought, said = blocks(thinking=budget)
    assert (thought["type"], thought["thinking"], said["text"]) == ("thinking", "hm" * 3, "42")
    again = blocks(messages=[*MESSAGES, {"role": "assistant", "content": [thought, said]}, *MESSAGES])
    assert again == [said], "thoughts that a client sends back are passed over"
    told = events(client, "/v1/messages", **{**asked, "thinking": budget})
    deltas = [event["delta"] for event in told if event["type"] == "content_block_delta"]
    assert "".join(delta.get("thinking", "") for delta in deltas) == "hm" * 3
    assert "".join(delta.get("text", "") for delta in deltas) == "42"
    starts = [event["content_block"]["type"] for event in told if event["type"] == "content_block_start"]
    assert starts == ["thinking", "text"]


def test_a_response_has_an_item_of_thoughts(client: httpx2.Client) -> None:
    answer = client.post("/v1/responses", json={"model": "worker", "input": "hi"}).json()
    thought, message = answer["output"]
    assert (thought["type"], thought["content"][0]["text"]) == ("reasoning", "hmah")
    assert message["content"][0]["text"] == "42"
    assert answer["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
    later = [thought, message, {"role": "user", "content": "and?"}]
    again = client.post("/v1/responses", json={"model": "worker", "input": later, "reasoning": {"effort": "none"}})
    assert [item["type"] for item in again.json()["output"]] == ["message"]


def test_a_streamed_response_ends_the_thoughts_before_the_message(client: httpx2.Client) -> None:
    sent = events(client, "/v1/responses", input="hi")
    kinds = list(dict.fromkeys(event["type"] for event in sent))
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.output_item.done",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.completed",
    ]
    places = [(event["output_index"], event["item"]["type"]) for event in sent if event["type"].endswith("item.added")]
    assert places == [(0, "reasoning"), (1, "message")]
    assert [item["type"] for item in sent[-1]["response"]["output"]] == ["reasoning", "message"]


def test_the_thoughts_of_a_step_are_in_the_journal_and_nowhere_else(daemon: Running, client: httpx2.Client) -> None:
    steps = [
        {"id": "S1", "actor": "worker", "action": "Think.", "outputs": ["answer.txt"]},
        {"id": "S2", "actor": "worker", "action": "Again.", "inputs": ["answer.txt"], "outputs": ["n.json"]},
    ]
    steps[1]["output_schema"] = {"type": "integer"}  # type: ignore[assignment]
    run = str(executed(client, {"task": {"objective": "a test", "plan": {"steps": steps}}})["run_id"])
    with JournalReader.open_to_read(daemon.home) as journal:
        report = build_report(RunView.of(event for _, event in journal.events(run)), journal.get)
        for step, name in zip(report.steps, ("answer.txt", "n.json"), strict=True):
            assert journal.get(step.outputs[name]) == b"42"
            (attempt,) = step.attempts
            assert journal.get(attempt.reasoning) == b"hmah"
            assert step.output_tokens - step.reasoning_tokens == 2
        named = {digest for owner, digest in journal.named_objects() if owner == run}
        assert attempt.reasoning in named, "the object is kept as long as the run"


def test_what_a_request_says_of_thinking() -> None:
    assert requested_thinking(None, None, None) is None
    assert requested_thinking(None, None, "minimal") == "low"
    assert requested_thinking(None, {"enable_thinking": True}, "none") == "on"
    assert requested_thinking(True, {"enable_thinking": False}, None) == "on"
    assert requested_thinking(0, None, "high") == 0
    assert requested_thinking(ThinkingBody(type="adaptive"), None, None) == "auto"
