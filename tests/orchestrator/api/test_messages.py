"""The official client of Anthropic's API works unchanged: whole and streamed answers, tools, tokens, errors."""

import importlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from orchestrator.api.anthropic.requests import CountBody, MessagesBody, messages_of, thinking_of, toolbox_of
from orchestrator.api.openai.chat import ChatBody, client_tools
from orchestrator.api.openai.protocol import engine_messages
from orchestrator.api.openai.tools import ClientTools
from orchestrator.engine.contract import Message, ToolCall
from orchestrator.errors import InputError
from tests.orchestrator.api.daemon_process import Running, cancelled

if TYPE_CHECKING:
    from anthropic import Anthropic

COLOURS: dict[str, Any] = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green"]}},
    "required": ["colour"],
    "additionalProperties": False,
}
PAINT: Any = {"name": "paint", "description": "Paint it.", "input_schema": COLOURS}
QUESTION: list[Any] = [{"role": "user", "content": "Summarize the text: Zilthir is a ship. Its owner is Renzer."}]
PAGE: Any = {"type": "web_search_result", "title": "Ships", "url": "https://a.org", "encrypted_content": "aGk="}
PIXEL: Any = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}


def library() -> Any:
    """Return Anthropic's library, whose import takes seconds, which collecting the tests need not take."""
    return importlib.import_module("anthropic")


@pytest.fixture
def ai(daemon: Running) -> Iterator["Anthropic"]:
    """The client as users make it: with an address and a key, which it sends as `x-api-key`."""
    with library().Anthropic(base_url=f"http://127.0.0.1:{daemon.port}", api_key=daemon.token, max_retries=0) as client:
        yield client


def ask(ai: "Anthropic", **more: Any) -> Any:
    asked: dict[str, Any] = {"model": "worker", "messages": QUESTION, "max_tokens": 48, **more}
    return ai.messages.create(**asked)


def test_an_answer_goes_on_with_what_the_assistant_has_begun(ai: "Anthropic") -> None:
    whole = ask(ai).content[0].text
    begun = whole[: whole.index(" ", 6)]
    options = {"temperature": 1.0, "top_k": 1}
    rest = ask(ai, messages=[*QUESTION, {"role": "assistant", "content": begun}], extra_body=options)
    assert begun + rest.content[0].text == whole


def test_options_of_other_servers_are_honoured_or_refused_by_name(ai: "Anthropic") -> None:
    usual = ask(ai).content[0].text
    assert ask(ai, extra_body={"guided_choice": ["red 3"]}).content[0].text == "red 3"
    assert ask(ai, extra_body={"temperature": 1.0, "min_p": 1.0, "seed": 5}).content[0].text == usual
    for name, value in {"response_format": {"type": "json_object"}, "logprobs": True, "n": 2, "top_a": 0.5}.items():
        with pytest.raises(library().BadRequestError, match=name):
            ask(ai, extra_body={name: value})


def test_a_message_is_answered(ai: "Anthropic", client: httpx2.Client) -> None:
    answer = ask(ai, system="Be brief.")
    (block,) = answer.content
    assert (answer.type, answer.role, block.type) == ("message", "assistant", "text")
    assert answer.stop_reason in ("end_turn", "max_tokens")
    assert answer.usage.output_tokens > 0
    chat = [{"role": "system", "content": "Be brief."}, *QUESTION]
    asked = {"model": "worker", "messages": chat, "max_tokens": 48}
    same = client.post("/v1/chat/completions", json=asked).json()
    assert block.text == same["choices"][0]["message"]["content"]
    assert ask(ai, model="auto", max_tokens=4).content


def test_a_stream_has_the_answer_in_pieces(ai: "Anthropic") -> None:
    whole = ask(ai)
    with ai.messages.stream(model="worker", messages=QUESTION, max_tokens=48) as stream:
        kinds = [event.type for event in stream]
        last = stream.get_final_message()
    assert last.content[0].text == whole.content[0].text  # type: ignore[union-attr]
    assert (last.stop_reason, last.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)
    assert kinds[0] == "message_start"
    assert [kind for kind in kinds if kind.startswith(("content_block_s", "message"))] == [
        "message_start",
        "content_block_start",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_the_events_of_a_stream_are_those_of_the_api(client: httpx2.Client) -> None:
    asked = {"model": "worker", "messages": QUESTION, "max_tokens": 8, "stream": True}
    text = client.post("/v1/messages", json=asked, headers={"anthropic-version": "2023-06-01"}).text
    names = [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")]
    data = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]
    assert names == [event["type"] for event in data]
    assert names[:3] == ["message_start", "ping", "content_block_start"]
    start = data[0]["message"]
    counted = client.post("/v1/messages/count_tokens", json={"model": "worker", "messages": QUESTION}).json()
    assert start["usage"]["input_tokens"] == counted["input_tokens"] > 0
    assert (start["content"], start["stop_reason"]) == ([], None)


def test_metadata_in_front_of_the_system_prompt_leaves_the_prefix_alone(ai: "Anthropic") -> None:
    rules = "You work in a terminal. " + "Keep names short, and say what you changed. " * 12
    used = []
    for checksum in ("36ee5", "0aaa9"):
        billing = f"x-anthropic-billing-header: cc_version=2.1; cc_entrypoint=cli; cch={checksum};"
        used.append(ask(ai, system=[{"type": "text", "text": text} for text in (billing, rules)], max_tokens=1).usage)
    first, second = used
    assert second.input_tokens + second.cache_read_input_tokens == first.input_tokens + first.cache_read_input_tokens
    assert second.input_tokens <= 8 < 100 < second.cache_read_input_tokens
    plain = ask(ai, system=rules, max_tokens=1).usage
    assert plain.input_tokens + plain.cache_read_input_tokens == first.input_tokens + first.cache_read_input_tokens


def test_a_stop_sequence_is_named(ai: "Anthropic") -> None:
    whole = ask(ai).content[0].text
    mark = whole[len(whole) // 2 :][:3]
    answer = ask(ai, stop_sequences=[mark])
    assert answer.content[0].text == whole[: whole.index(mark)]
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", mark)
    assert ask(ai, max_tokens=2).stop_reason == "max_tokens"


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "paint"}])
def test_a_tool_that_has_to_be_called_is_called(ai: "Anthropic", choice: Any) -> None:
    answer = ask(ai, tools=[PAINT], tool_choice=choice)
    (call,) = [block for block in answer.content if block.type == "tool_use"]
    assert (answer.stop_reason, call.name) == ("tool_use", "paint")
    assert call.input["colour"] in ("red", "green")
    with ai.messages.stream(
        model="worker", messages=QUESTION, max_tokens=48, tools=[PAINT], tool_choice=choice
    ) as stream:
        assert stream.get_final_message().content[-1].input == call.input  # type: ignore[union-attr]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "painted"}]}
    made = {"type": "tool_use", "id": call.id, "name": call.name, "input": call.input}
    talk = [*QUESTION, {"role": "assistant", "content": [made]}, {"role": "user", "content": [result]}]
    assert ask(ai, messages=talk, tools=[PAINT]).content


def test_the_format_of_an_answer_is_obeyed(ai: "Anthropic") -> None:
    form = {"output_config": {"format": {"type": "json_schema", "schema": COLOURS}}}
    assert json.loads(ask(ai, extra_body=form).content[0].text)["colour"] in ("red", "green")


def test_tokens_are_counted(ai: "Anthropic") -> None:
    counted = ai.messages.count_tokens(model="worker", messages=QUESTION).input_tokens
    answer = ask(ai)
    assert counted == answer.usage.input_tokens + answer.usage.cache_read_input_tokens
    assert ai.messages.count_tokens(model="worker", messages=QUESTION, tools=[PAINT]).input_tokens > counted


def test_errors_raise_the_exceptions_of_the_client(ai: "Anthropic") -> None:
    anthropic = library()
    with pytest.raises(anthropic.NotFoundError, match="there is no model 'claude'"):
        ask(ai, model="claude")
    with pytest.raises(anthropic.BadRequestError, match="which no model here can take in"):
        ask(ai, messages=[{"role": "user", "content": [PIXEL]}])
    with pytest.raises(anthropic.BadRequestError, match="'web_search_20250305' is not supported"):
        ask(ai, tools=[{"type": "web_search_20250305", "name": "web_search"}])
    with pytest.raises(anthropic.BadRequestError, match="max_tokens: is 0") as caught:
        ask(ai, max_tokens=0)
    body: Any = caught.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    with pytest.raises(anthropic.AuthenticationError) as refused:
        ask(ai.with_options(api_key="wrong"))
    body = refused.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "authentication_error")


def test_an_answer_is_cancelled_when_the_client_disconnects(ai: "Anthropic", daemon: Running) -> None:
    with cancelled(daemon, 1500):
        stream = ask(
            ai, max_tokens=1500, stream=True, extra_body={"output_config": {"format": LIST}, "temperature": 1.0}
        )
        next(iter(stream))
        stream.close()


LIST = {
    "type": "json_schema",
    "schema": {"type": "array", "items": {"type": "integer"}, "minItems": 900},
}


def parsed(*turns: dict[str, Any], **more: Any) -> list[Message]:
    return messages_of(CountBody.model_validate({"model": "m", "messages": list(turns), **more}))


def posted(client: httpx2.Client, messages: list[Any], status: int = 200, **more: Any) -> dict[str, Any]:
    asked = {"model": "worker", "messages": messages, "max_tokens": 24, **more}
    answer = client.post("/v1/messages", json=asked)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_thread_is_gone_on_with_as_if_the_whole_conversation_had_been_sent(client: httpx2.Client) -> None:
    fixed: dict[str, Any] = {"system": "Be brief.", "tools": [PAINT]}
    first = posted(client, QUESTION, thread={"type": "create"}, **fixed)
    more: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Summarize it again."}]}]
    going_on = {"type": "continue", "previous_message_id": first["id"]}
    second = posted(client, more, thread=going_on)
    talk = [*QUESTION, {"role": "assistant", "content": first["content"]}, *more]
    whole = posted(client, talk, **fixed)
    assert second["content"] == whole["content"]
    assert prompt_tokens(second) == prompt_tokens(whole)
    again = {"type": "continue", "previous_message_id": second["id"]}
    third = posted(client, more, thread=again, **fixed)
    talk += [{"role": "assistant", "content": second["content"]}, *more]
    assert third["content"] == posted(client, talk, **fixed)["content"]
    branch = posted(client, more, thread=going_on)
    assert branch["content"] == second["content"]


def prompt_tokens(answer: dict[str, Any]) -> int:
    return int(answer["usage"]["input_tokens"] + answer["usage"]["cache_read_input_tokens"])


def test_a_streamed_answer_can_be_gone_on_with_when_it_has_ended(ai: "Anthropic", client: httpx2.Client) -> None:
    with ai.messages.stream(
        model="worker", messages=QUESTION, max_tokens=24, extra_body={"thread": {"type": "create"}}
    ) as stream:
        first = stream.get_final_message()
    more: list[Any] = [{"role": "user", "content": "Again."}]
    second = posted(client, more, thread={"type": "continue", "previous_message_id": first.id})
    whole = posted(client, [*QUESTION, {"role": "assistant", "content": first.content[0].text}, *more])  # type: ignore[union-attr]
    assert second["content"] == whole["content"]


def test_what_cannot_be_gone_on_with_is_refused_by_a_name_that_clients_know(client: httpx2.Client) -> None:
    first = posted(client, QUESTION, thread={"type": "create"}, tools=[PAINT])
    going_on = {"type": "continue", "previous_message_id": first["id"]}
    other = posted(client, QUESTION, 400, thread=going_on, tools=[{**PAINT, "name": "draw"}])["error"]
    assert (other["type"], other["details"]) == (
        "invalid_request_error",
        {"error_code": "thread_fingerprint_mismatch"},
    )
    unkept = posted(client, QUESTION)["id"]
    for previous in (unkept, f"msg_{'0' * 24}", "../threads", "resp_1"):
        lost = posted(client, QUESTION, 404, thread={**going_on, "previous_message_id": previous})["error"]
        assert (lost["type"], lost["details"]) == ("not_found_error", {"error_code": "thread_not_found"})
    unnamed = posted(client, QUESTION, 400, thread={"type": "continue"})["error"]
    assert "thread/previous_message_id: is missing" in unnamed["message"]
    assert "details" not in unnamed
    assert "compaction" in posted(client, QUESTION, 400, compaction={"type": "summarize"})["error"]["message"]
    assert client.get(f"/v1/responses/{first['id']}").status_code == 404


def test_the_same_conversation_is_the_same_prompt_as_in_chats() -> None:
    """Whatever the form: results of tools as text or in blocks, an error, several calls, thoughts."""
    calls = [("t1", "paint", {"colour": "red"}), ("t2", "paint", {"colour": "grün"})]
    results = [("t1", "done"), ("t2", [{"type": "text", "text": "no paint"}])]
    turns = [
        {"role": "user", "content": "Paint."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "text", "text": "Painting."},
                *({"type": "tool_use", "id": id, "name": name, "input": given} for id, name, given in calls),
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": id, "content": said} for id, said in results],
        },
    ]
    functions = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(given, ensure_ascii=False)}}
        for id, name, given in calls
    ]
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Paint."},
        {"role": "assistant", "content": "Painting.", "reasoning_content": "hm", "tool_calls": functions},
        *({"role": "tool", "tool_call_id": id, "content": said} for id, said in results),
    ]
    body = CountBody.model_validate({"model": "m", "messages": turns, "system": "Be brief.", "tools": [PAINT]})
    function = {"name": "paint", "description": "Paint it.", "parameters": COLOURS}
    same = ChatBody.model_validate({"model": "m", "messages": chat, "tools": [{"function": function}]})
    assert messages_of(body) == engine_messages(same.messages)
    assert toolbox_of(body) == ClientTools.of(client_tools(same.tools), None)


def test_blocks_become_messages_in_their_order() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "paint", "input": {"colour": "red"}}
    thought = {"type": "thinking", "thinking": "hm", "signature": ""}
    said = {"type": "text", "text": "Painting."}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "no paint", "is_error": True}
    file = {"type": "document", "title": "a.txt", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}
    assert parsed(
        {"role": "user", "content": [{"type": "text", "text": "Paint."}, file]},
        {"role": "assistant", "content": [thought, said, call]},
        {"role": "user", "content": [result, {"type": "text", "text": "Go on."}]},
        system=[{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}],
    ) == [
        Message("system", "One.\nTwo."),
        Message("user", "Paint.\na.txt\nx"),
        Message("assistant", "Painting.", (ToolCall("t1", "paint", '{"colour": "red"}'),)),
        Message("tool", "Error: no paint", tool_call_id="t1"),
        Message("user", "Go on."),
    ]


@pytest.mark.parametrize(
    ("system", "kept"),
    [
        ("x-anthropic-billing-header: cch=1;", []),
        ("x-anthropic-billing-header: cch=1;\nBe brief.\nx-anthropic-billing-header: is a header.", ["Be brief."]),
        ("Say what x-anthropic-billing-header: cch=1; is.", ["Say what x-anthropic-billing-header: cch=1; is."]),
    ],
)
def test_only_the_first_line_of_a_system_prompt_is_metadata(system: str, kept: list[str]) -> None:
    body = CountBody.model_validate({"model": "m", "messages": QUESTION, "system": system})
    assert [one.content.split("\n")[0] for one in messages_of(body) if one.role == "system"] == kept


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ({}, "{}"),
        ({"input": None}, "{}"),
        ({"input": {}}, "{}"),
        ({"input": ""}, "{}"),
        ({"input": "{"}, "{"),
        ({"input": {"a": 1}}, '{"a": 1}'),
    ],
)
def test_a_call_of_the_history_may_have_any_input(given: Any, arguments: str) -> None:
    blocks = [{"type": "tool_use", "id": "c1", "name": "paint", **given}]
    body = CountBody.model_validate({"model": "m", "messages": [*QUESTION, {"role": "assistant", "content": blocks}]})
    assert messages_of(body)[-1].tool_calls == (ToolCall("c1", "paint", arguments),)


def test_a_block_that_holds_no_text_is_named() -> None:
    with pytest.raises(
        InputError,
        match=r"content/1: is a picture .*which no model here can take in; accepted: text",
    ):
        parsed({"role": "user", "content": [{"type": "text", "text": "a"}, PIXEL]})
    with pytest.raises(InputError, match="content/0: is of type 'text', but has no text"):
        parsed({"role": "user", "content": [{"type": "text"}]})
    scanned = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}}
    with pytest.raises(InputError, match="is a document from a source of type 'base64'"):
        parsed({"role": "user", "content": [scanned]})


@pytest.mark.parametrize(
    ("block", "line"),
    [
        (PIXEL, "[image, image/png, 2 bytes: it cannot be shown]"),
        (
            {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
            "[image, https://example.org/a.png: it cannot be shown]",
        ),
        (
            {"type": "document", "title": "a.pdf", "source": {"type": "base64", "media_type": "a/b", "data": "aGk="}},
            "[document, a.pdf, a/b, 2 bytes: it cannot be shown]",
        ),
        (
            {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "x"}, PIXEL]}},
            "x\n[image, image/png, 2 bytes: it cannot be shown]",
        ),
        (
            {
                "type": "search_result",
                "title": "Ships",
                "source": "https://example.org",
                "content": [{"type": "text", "text": "They sail."}],
            },
            "Ships\nhttps://example.org\nThey sail.",
        ),
        ({"type": "tool_reference", "tool_name": "paint"}, "[tool_reference, paint]"),
        ({"type": "hologram"}, "[hologram: it cannot be shown]"),
    ],
)
def test_a_line_stands_for_what_is_no_text_in_the_result_of_a_tool(block: dict[str, Any], line: str) -> None:
    content = [{"type": "text", "text": "read 1 file"}, block]
    (message,) = parsed({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": content}]})
    assert message == Message("tool", f"read 1 file\n{line}", tool_call_id="1")


def test_a_line_stands_for_what_tools_of_the_server_have_done() -> None:
    blocks = [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [PAGE]},
        {"type": "code_execution_tool_result", "tool_use_id": "s2", "content": {"type": "e", "stdout": "1"}},
        {"type": "mcp_tool_use", "id": "s3", "name": "far", "server_name": "s", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "s3", "content": [{"type": "text", "text": "near"}]},
        {"type": "text", "text": "Found."},
    ]
    (message,) = parsed({"role": "assistant", "content": blocks})
    assert message == Message(
        "assistant",
        '[server_tool_use, web_search: {"query": "x"}]\n'
        "[web_search_result, Ships, https://a.org: it cannot be shown]\n"
        "[code_execution_tool_result: it cannot be shown]\n"
        "[mcp_tool_use, far: {}]\nnear\nFound.",
    )


def test_tools_of_the_server_are_left_out_with_a_warning(client: httpx2.Client) -> None:
    tools = [{"name": "paint", "input_schema": {"type": "object"}}, {"type": "mcp_toolset", "mcp_server_name": "s"}]
    body = {"model": "worker", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi."}], "tools": tools}
    response = client.post("/v1/messages", json=body)
    assert response.status_code == 200
    assert json.loads(response.headers["x-warnings"]) == ["tools/1: a tool of the type 'mcp_toolset' is left out"]
    assert client.post("/v1/messages/count_tokens", json=body).status_code == 200


@pytest.mark.parametrize(
    ("thinking", "effort", "wanted"),
    [
        ({"type": "adaptive"}, "max", "high"),
        ({"type": "enabled", "budget_tokens": 64}, "low", 64),
        ({"type": "adaptive"}, None, "auto"),
        (None, "high", "off"),
    ],
)
def test_the_effort_says_how_much_is_thought(thinking: Any, effort: Any, wanted: Any) -> None:
    given = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}], "thinking": thinking}
    assert thinking_of(MessagesBody.model_validate({**given, "output_config": {"effort": effort}})) == wanted
