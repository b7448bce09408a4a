"""Requests with parts that cannot be obeyed: the rest is carried out, and a header says what was left out."""

import json
from typing import Any

import httpx2
import pytest

from orchestrator.api.openai.protocol import ChatMessage, engine_messages
from orchestrator.api.openai.responses import InputItem, ResponseBody, input_messages, request_of
from orchestrator.engine.contract import Message, ToolCall
from orchestrator.errors import InputError

SHELL: Any = {"type": "function", "name": "shell", "parameters": {"type": "object", "properties": {}}}
SEARCH: Any = {"type": "web_search", "search_context_size": "low"}
PATCH: Any = {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "definition": "start: /.+/"}}
BILLING: Any = {
    "type": "namespace",
    "name": "billing",
    "description": "Invoices",
    "tools": [{"type": "function", "name": "pay", "parameters": None}, {"type": "custom", "name": "note"}],
}
ASKED: Any = {"model": "worker", "max_output_tokens": 8, "temperature": 0}
SCHEMA: Any = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "pattern": r"^(?:x|y)(?<=x)$"},
        "page": {"type": "string", "format": "uri", "maxLength": 5},
        "month": {"type": "string", "pattern": r"^(?<year>\d{4})-(?<month>\d{2})$"},
    },
    "required": ["code"],
    "additionalProperties": False,
}


def warnings_of(response: httpx2.Response) -> list[str]:
    assert response.status_code == 200, response.text
    return list(json.loads(response.headers.get("x-warnings", "[]")))


@pytest.mark.parametrize("stream", [False, True])
def test_tools_that_only_openai_carries_out_are_left_out_with_a_warning(client: httpx2.Client, stream: bool) -> None:
    body = {**ASKED, "input": "Hi.", "tools": [SHELL, SEARCH, {"type": "image_generation"}, PATCH], "stream": stream}
    told = warnings_of(client.post("/v1/responses", json=body))
    assert [text.partition(":")[0] for text in told] == ["tools/1", "tools/2", "tools/3"]
    assert "'web_search' is left out" in told[0]


def test_tools_of_which_none_is_a_function_are_refused(client: httpx2.Client) -> None:
    for path, tools in (("responses", [SEARCH]), ("responses", [{**BILLING, "tools": [PATCH]}]), ("chat", [PATCH])):
        body = {"model": "worker", "input": "Hi.", "messages": [{"role": "user", "content": "Hi."}], "tools": tools}
        if path == "chat":
            body.pop("input")
        refused = client.post("/v1/chat/completions" if path == "chat" else "/v1/responses", json=body)
        assert refused.status_code == 400
        assert "no tool is a function" in refused.json()["error"]["message"]


def test_a_function_in_a_namespace_is_called_by_both_names(client: httpx2.Client) -> None:
    choice = {"type": "function", "name": "pay", "namespace": "billing"}
    body = {**ASKED, "input": "Pay.", "tools": [SHELL, BILLING], "tool_choice": choice, "max_output_tokens": 64}
    answer = client.post("/v1/responses", json=body).json()
    (call,) = answer["output"]
    assert (call["name"], call["namespace"]) == ("pay", "billing")
    assert [tool["name"] for tool in answer["tools"]] == ["shell", "billing"]
    assert [tool["name"] for tool in answer["tools"][1]["tools"]] == ["pay"]
    streamed = client.post("/v1/responses", json={**body, "stream": True}).text
    events = [json.loads(line.removeprefix("data: ")) for line in streamed.splitlines() if line.startswith("data: {")]
    items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert [(item["name"], item["namespace"]) for item in items] == [("pay", "billing")]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "paid"}
    again = {**body, "input": [result], "previous_response_id": answer["id"], "tool_choice": "none"}
    assert client.post("/v1/responses", json=again).status_code == 200


def test_the_model_gets_the_functions_of_namespaces_under_names_of_their_own() -> None:
    ended = {**BILLING, "name": "mcp__far__"}
    pay = {"type": "function", "name": "pay", "namespace": "billing"}
    allowed = [pay, SEARCH, {"type": "function", "name": "shell"}]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": allowed}
    body = ResponseBody.model_validate({"model": "m", "input": "x", "tools": [SHELL, BILLING, ended]})
    assert [tool.name for tool in request_of(body).toolbox.tools] == ["shell", "billing__pay", "mcp__far__pay"]
    some = request_of(body.model_copy(update={"tool_choice": choice})).toolbox
    assert [tool.name for tool in some.tools] == ["shell", "billing__pay"]
    call = InputItem(type="function_call", call_id="1", namespace="billing", name="pay", arguments="{}")
    assert input_messages([call], None) == [Message("assistant", "", (ToolCall("1", "billing__pay", "{}"),))]


def test_items_of_tools_that_were_left_out_are_left_out_too(client: httpx2.Client) -> None:
    items = [
        {"role": "user", "content": "Hi."},
        {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** Begin"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"},
        {"type": "web_search_call", "id": "w1", "status": "completed", "action": {"type": "search", "query": "x"}},
        {"type": "computer_call_output", "call_id": "c2", "output": {"type": "computer_screenshot"}},
        {"type": "tool_search_output", "tools": [{}]},
        {"role": "user", "content": "Go on."},
    ]
    told = warnings_of(client.post("/v1/responses", json={**ASKED, "tools": [SHELL], "input": items}))
    assert [text.partition(":")[0] for text in told] == [f"input/{index}" for index in range(1, 6)]
    given = [InputItem.model_validate(item) for item in items]
    assert [message.content for message in input_messages(given, None)] == ["Hi.", "Go on."]
    misspelt = InputItem.model_validate({"type": "functioncall", "name": "x"})
    with pytest.raises(InputError, match="'functioncall' is not supported"):
        input_messages([misspelt], None)


def test_a_conversation_of_openai_is_refused_by_name(client: httpx2.Client) -> None:
    for conversation in ("conv_1", {"id": "conv_1"}):
        refused = client.post("/v1/responses", json={**ASKED, "input": "Hi.", "conversation": conversation})
        assert refused.status_code == 400
        assert "conversation: is not supported; accepted: previous_response_id" in refused.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_what_nothing_enforces_of_a_schema_is_reported_with_its_place(client: httpx2.Client, stream: bool) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}
    asked = {"model": "worker", "messages": [{"role": "user", "content": "A code."}], "response_format": form}
    told = warnings_of(client.post("/v1/chat/completions", json={**asked, "stream": stream, "max_tokens": 8}))
    assert [text.partition(":")[0] for text in told] == [
        "schema/properties/code/pattern",
        "schema/properties/page/format",
    ]
    assert "look-behind" in told[0]
    raw = {"model": "worker", "prompt": "A code:", "json_schema": SCHEMA, "max_tokens": 8, "stream": stream}
    assert warnings_of(client.post("/v1/completions", json=raw)) == told


def test_a_pattern_of_a_tool_refuses_no_request(client: httpx2.Client) -> None:
    function = {"name": "send", "parameters": SCHEMA}
    empty = {"name": "clock", "parameters": None}
    tools = [{"type": "function", "function": one} for one in (function, empty)]
    body = {"model": "worker", "messages": [{"role": "user", "content": "Hi."}], "tools": tools, "max_tokens": 8}
    told = warnings_of(client.post("/v1/chat/completions", json=body))
    assert told[0].startswith("tools/send/properties/code/pattern: ")


def test_an_answer_has_the_formats_of_its_schema(client: httpx2.Client) -> None:
    formats = ("date-time", "date", "uuid", "email", "time", "ipv4")
    properties = {name: {"type": "string", "format": name} for name in formats}
    schema = {"type": "object", "properties": properties, "required": [*formats], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    question = {"role": "user", "content": "The meeting is on Thursday at noon in a room whose id is unknown."}
    body = {"model": "worker", "messages": [question], "response_format": form, "temperature": 0, "max_tokens": 400}
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200
    assert warnings_of(answer) == []
    assert [*json.loads(answer.json()["choices"][0]["message"]["content"])] == [*formats]


def test_a_line_stands_for_a_picture_in_the_result_of_a_tool() -> None:
    picture = "data:image/png;base64,iVBORw0KGgo="
    parts = [{"type": "text", "text": "read"}, {"type": "image_url", "image_url": {"url": picture}}]
    line = "[image, image/png, 8 bytes: it cannot be shown]"
    chat = ChatMessage.model_validate({"role": "tool", "tool_call_id": "1", "content": parts})
    assert engine_messages([chat]) == [Message("tool", f"read\n{line}", tool_call_id="1")]
    output = [{"type": "input_image", "image_url": picture}, {"type": "input_file", "file_id": "file-1"}]
    item = InputItem.model_validate({"type": "function_call_output", "call_id": "1", "output": output})
    (message,) = input_messages([item], None)
    assert message.content == f"{line}\n[file, file-1: it cannot be shown]"
    with pytest.raises(InputError, match="a picture"):
        engine_messages([ChatMessage.model_validate({"role": "user", "content": parts})])


def test_arguments_of_earlier_calls_may_be_an_object() -> None:
    function = {"name": "f", "arguments": {"city": "Köln"}}
    chat = ChatMessage.model_validate({"role": "assistant", "tool_calls": [{"id": "1", "function": function}]})
    item = InputItem.model_validate({"type": "function_call", "call_id": "1", **function})
    wanted = [Message("assistant", "", (ToolCall("1", "f", '{"city": "Köln"}'),))]
    assert engine_messages([chat]) == input_messages([item], None) == wanted


def test_the_largest_effort_is_the_most_that_models_know() -> None:
    body = ResponseBody.model_validate({"model": "m", "input": "x", "reasoning": {"effort": "max"}})
    assert request_of(body).thinking == "high"
