"""The official OpenAI client works unchanged: whole and streamed answers, schemas, tools, runs, cancellation."""

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any, Literal

import httpx2
import numpy as np
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from orchestrator.service.callers import user_key
from orchestrator.task.lexical import embed
from tests.orchestrator.api.daemon_process import Running, cancelled

QUESTION: list[Any] = [{"role": "user", "content": "Summarize the text: Zilthir is a ship. Its owner is Renzer."}]
COLOURS: dict[str, Any] = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green"]}},
    "required": ["colour"],
    "additionalProperties": False,
}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
LIST: dict[str, Any] = {"type": "array", "items": {"type": "integer"}, "minItems": 900}
LONG = 1500
PAINT = {"type": "function", "function": {"name": "paint", "description": "Paint it.", "parameters": COLOURS}}
STAMP = {"type": "function", "function": {"name": "stamp", "parameters": NOTHING}}


@pytest.fixture
def ai(daemon: Running) -> Iterator[OpenAI]:
    """The client as users make it: with an address and a key."""
    with OpenAI(base_url=f"http://127.0.0.1:{daemon.port}/v1", api_key=daemon.token, max_retries=0) as client:
        yield client


def ask(ai: OpenAI, **more: Any) -> Any:
    """Return a chat completion, of the role `worker` unless `more` names another model."""
    asked = {"model": "worker", "messages": QUESTION, "max_tokens": 48, **more}
    return ai.chat.completions.create(**asked)


def test_roles_personas_models_and_the_general_names_are_listed(ai: OpenAI) -> None:
    names = {model.id for model in ai.models.list()}
    assert {"auto", "orchestrate", "worker", "coder", "tiny-large", "lexical"} <= names
    worker: Any = ai.models.retrieve("worker")
    assert worker.id == "worker"
    assert worker.context_length == worker.max_model_len > 1000


def test_the_endpoints_are_there_without_the_version_too(daemon: Running) -> None:
    with daemon.tcp() as anybody:
        assert [anybody.get(path).json() for path in ("/health", "/v1/health")] == [{"status": "ok"}] * 2
        assert anybody.post("/chat/completions", json={}).status_code == 401
    with daemon.client() as client:
        assert client.get("/models").json() == client.get("/v1/models").json()
        answer = client.post("/chat/completions", json={"model": "worker", "messages": QUESTION, "max_tokens": 8})
        assert answer.json()["choices"][0]["message"]["content"]
        assert client.post("/embeddings", json={"model": "lexical", "input": "a"}).is_success


@pytest.mark.parametrize("model", ["worker", "auto", "tiny-large"])
def test_a_chat_is_answered(ai: OpenAI, model: str) -> None:
    answer = ask(ai, model=model)
    (choice,) = answer.choices
    assert choice.message.content
    assert choice.finish_reason in ("stop", "length")
    assert answer.model == model
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0


def test_what_the_router_chose_for_a_chat_is_kept_and_rated(ai: OpenAI, client: httpx2.Client) -> None:
    answer = ask(ai, model="auto", n=2, temperature=1.0)
    kept = client.post(f"/v1/chats/{answer.id}/ratings", json={"score": 0.5}).raise_for_status().json()
    assert (kept["chat"], kept["score"], kept["by"]) == (answer.id, 0.5, user_key())
    chat = client.get(f"/v1/chats/{answer.id}").raise_for_status().json()
    routed = chat["routed"]
    assert (routed["asked_role"], routed["model"]) == ("worker", answer.system_fingerprint)
    assert routed["objective"] == QUESTION[0]["content"]
    assert 0 < routed["propensity"] <= 1
    assert routed["router"]
    assert answer.system_fingerprint in [one["model"] for one in routed["candidates"]]
    assert sorted((one["answer"], one["failure"]) for one in chat["answers"]) == [(0, None), (1, None)]
    assert sum(one["usage"]["output_tokens"] for one in chat["answers"]) == answer.usage.completion_tokens
    assert [one["score"] for one in chat["ratings"]] == [0.5]
    assert client.get("/v1/chats?limit=1").json()["chats"] == [chat]
    named = ask(ai)
    assert client.get(f"/v1/chats/{named.id}").status_code == 404, "the client has chosen"
    assert client.post(f"/v1/chats/{named.id}/ratings", json={"score": 1}).status_code == 404


def test_a_limit_that_the_context_has_no_room_for_is_no_reason_to_refuse(ai: OpenAI) -> None:
    assert ask(ai, max_tokens=1_000_000).choices[0].finish_reason == "stop"
    form = {"type": "json_schema", "json_schema": {"name": "list", "schema": LIST, "strict": True}}
    long = [{"role": "user", "content": "The ship carries tea. " * 130}]
    endless = {"model": "tiny-small", "response_format": form, "temperature": 2.0, "seed": 1}
    cut = ask(ai, messages=long, max_tokens=1_000_000, **endless)
    assert cut.choices[0].finish_reason == "length", "the client is told that the answer was cut"
    assert cut.usage.completion_tokens < 2048


def test_a_persona_is_a_model_too(ai: OpenAI) -> None:
    general = {"auto", "orchestrate", "lexical"}
    known = [model.id for model in ai.models.list() if model.id not in general]
    persona = next(name for name in known if not name.startswith("tiny") and name not in ROLES)
    assert ask(ai, model=persona).choices[0].message.content


ROLES = {"frontdoor", "worker", "coder", "architect", "judge", "draft"}


def test_a_streamed_answer_is_the_whole_one_in_pieces(ai: OpenAI) -> None:
    whole = ask(ai)
    chunks = list(ask(ai, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert len(chunks) > 3
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_several_answers_come_at_once(ai: OpenAI) -> None:
    answers = ask(ai, n=3, temperature=1.0, seed=7).choices
    assert [choice.index for choice in answers] == [0, 1, 2]
    streamed = {chunk.choices[0].index for chunk in ask(ai, n=2, stream=True)}
    assert streamed == {0, 1}


def test_an_answer_matches_the_schema_that_was_asked_for(ai: OpenAI) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "colour", "schema": COLOURS, "strict": True}}
    said = ask(ai, response_format=form).choices[0].message.content
    assert json.loads(said)["colour"] in ("red", "green")
    assert ask(ai, response_format={"type": "json_object"}).choices[0].message.content.lstrip().startswith("{")


def form(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the `response_format` of a JSON Schema."""
    return {"type": "json_schema", "json_schema": {"name": "form", "schema": schema, "strict": True}}


def test_bounds_and_patterns_are_obeyed(ai: OpenAI) -> None:
    order = {"type": "integer", "minimum": 1000, "maximum": 9999}
    properties = {"order": order, "code": {"type": "string", "pattern": "^[A-Z]{3}$"}}
    schema = {"type": "object", "properties": properties, "required": ["order", "code"], "additionalProperties": False}
    found = json.loads(ask(ai, response_format=form(schema)).choices[0].message.content)
    assert 1000 <= found["order"] <= 9999
    assert re.fullmatch("[A-Z]{3}", found["code"])


def test_an_answer_that_breaks_its_schema_each_time_is_an_error(ai: OpenAI) -> None:
    """What the grammar cannot express is checked when the answer is complete: no two items of an enum of one differ."""
    schema = {"type": "array", "items": {"enum": [1]}, "minItems": 2, "maxItems": 3, "uniqueItems": True}
    for stream in (False, True):
        with pytest.raises(openai.UnprocessableEntityError, match="non-unique"):
            ask(ai, response_format=form(schema), stream=stream)


def test_json_mode_takes_a_schema(ai: OpenAI) -> None:
    answer = ask(ai, extra_body={"response_format": {"type": "json_object", "schema": COLOURS}})
    assert json.loads(answer.choices[0].message.content)["colour"] in ("red", "green")


@pytest.mark.parametrize(("name", "value"), [("functions", []), ("echo", True), ("best_of", 3), ("top_n_sigma", 0.5)])
def test_options_that_shape_an_answer_are_never_dropped(ai: OpenAI, name: str, value: Any) -> None:
    with pytest.raises(openai.BadRequestError, match=name):
        ask(ai, extra_body={name: value})


def test_penalties_change_the_answer(ai: OpenAI) -> None:
    usual = ask(ai).choices[0].message.content
    assert ask(ai, frequency_penalty=0.0, extra_body={"repeat_last_n": -1}).choices[0].message.content == usual
    assert ask(ai, presence_penalty=0.5, extra_body={"repetition_penalty": 10}).choices[0].message.content != usual
    with pytest.raises(openai.BadRequestError, match="frequency_penalty is 3"):
        ask(ai, frequency_penalty=3.0)


def test_a_function_without_parameters_gets_no_arguments(ai: OpenAI) -> None:
    tool = {"type": "function", "function": {"name": "get_time", "description": "Current time"}}
    other = {"type": "function", "function": {"name": "stop", "parameters": {"type": "object", "properties": {}}}}
    for tools in ([tool], [other], [tool, other]):
        (call,) = ask(ai, tools=tools, tool_choice="required").choices[0].message.tool_calls
        assert json.loads(call.function.arguments) == {}


def test_a_prompt_that_is_too_long_has_the_code_that_clients_know(ai: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(ai, messages=[{"role": "user", "content": "a b " * 20000}])
    assert caught.value.code == "context_length_exceeded"


def test_a_body_that_is_not_declared_as_json_names_the_header(client: httpx2.Client) -> None:
    body = json.dumps({"model": "worker", "messages": QUESTION}).encode()
    answer = client.post("/v1/chat/completions", content=body, headers={"Content-Type": "text/plain"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "header Content-Type")


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "paint"}}])
@pytest.mark.parametrize("tools", [[PAINT], [PAINT, STAMP]])
def test_a_tool_that_has_to_be_called_is_called(ai: OpenAI, choice: Any, tools: Any) -> None:
    answer = ask(ai, tools=tools, tool_choice=choice)
    assert answer.choices[0].finish_reason == "tool_calls"
    (call,) = answer.choices[0].message.tool_calls
    arguments = json.loads(call.function.arguments)
    assert call.function.name in {tool["function"]["name"] for tool in tools}
    if call.function.name == "paint":
        assert arguments["colour"] in ("red", "green")
    if choice != "required":
        assert call.function.name == "paint"


def test_a_streamed_call_and_the_messages_after_it(ai: OpenAI) -> None:
    chunks = list(ask(ai, tools=[PAINT], tool_choice="required", stream=True))
    call, *pieces = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    arguments = "".join(piece.function.arguments for piece in (call, *pieces))
    assert json.loads(arguments)["colour"] in ("red", "green")
    assert not any(chunk.choices[0].delta.content for chunk in chunks)
    made = {"id": call.id, "type": "function", "function": {"name": "paint", "arguments": arguments}}
    talk = [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": call.id, "content": "painted"},
    ]
    assert ask(ai, messages=talk, tools=[PAINT]).choices


def test_a_chat_is_cancelled_when_the_client_disconnects(ai: OpenAI, daemon: Running) -> None:
    several = {**long_answer(LONG), "n": 8, "temperature": 2.0}  # which takes longer than to notice that it left
    with cancelled(daemon, 8 * LONG):
        stream = ask(ai, **several, stream=True)
        next(iter(stream))
        stream.close()
    with cancelled(daemon, 8 * LONG), pytest.raises(openai.APITimeoutError):
        ask(ai.with_options(timeout=0.05), **several)


def long_answer(tokens: int) -> dict[str, Any]:
    """Return options for an answer of exactly `tokens` tokens: a list that may not end earlier."""
    form = {"type": "json_schema", "json_schema": {"name": "long", "schema": LIST}}
    return {"max_tokens": tokens, "response_format": form}


def test_a_whole_run_answers(ai: OpenAI, daemon: Running) -> None:
    asked = [{"role": "user", "content": "Write a Python function that adds two numbers."}]
    chunks = list(ask(ai, model="orchestrate", messages=asked, stream=True, max_tokens=4096))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    with daemon.client() as client:
        newest = client.get("/v1/runs", params={"limit": 1}).json()["runs"][0]
        assert newest["request"] == asked[0]["content"]
        assert client.get(f"/v1/runs/{newest['run_id']}/result").json()["answer"] == text


def test_errors_raise_the_exceptions_of_the_client(ai: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="there is no model"):
        ask(ai, model="nobody")
    with pytest.raises(openai.BadRequestError, match="temperature"):
        ask(ai, temperature=9)
    with pytest.raises(openai.BadRequestError, match="top_logprobs"):
        ask(ai, top_logprobs=1)
    with pytest.raises(openai.BadRequestError, match="image_url"):
        ask(ai, messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])
    with pytest.raises(openai.BadRequestError, match="tokens"):
        ask(ai, messages=[{"role": "user", "content": "word " * 9000}])
    with pytest.raises(openai.AuthenticationError):
        ask(ai.with_options(api_key="wrong"))


def test_responses_are_answered_and_streamed(ai: OpenAI) -> None:
    asked: dict[str, Any] = {"model": "worker", "input": QUESTION[0]["content"], "max_output_tokens": 48}
    whole = ai.responses.create(**asked)
    assert whole.output_text
    assert whole.status in ("completed", "incomplete")
    assert whole.usage is not None
    assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens
    with ai.responses.stream(**asked) as stream:
        kinds = [event.type for event in stream]
        last = stream.get_final_response()
    assert last.output_text == whole.output_text
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == f"response.{whole.status}"
    assert "response.output_text.delta" in kinds


def test_a_response_says_how_likely_its_tokens_were_streamed_too(ai: OpenAI) -> None:
    asked: dict[str, Any] = {"model": "worker", "input": QUESTION[0]["content"], "max_output_tokens": 24}
    whole: Any = ai.responses.create(**asked, top_logprobs=2, include=["message.output_text.logprobs"])
    (part,) = whole.output[0].content
    assert "".join(one.token for one in part.logprobs) == part.text == whole.output_text
    assert all(len(one.top_logprobs) == 2 for one in part.logprobs)
    with ai.responses.stream(**asked, include=["message.output_text.logprobs"]) as stream:
        events: list[Any] = list(stream)
        last: Any = stream.get_final_response()
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert any(event.logprobs for event in deltas), "they come with the pieces of the text"
    assert all(event.delta == "".join(one.token for one in event.logprobs) for event in deltas)
    assert [one.logprob for one in last.output[0].content[0].logprobs] == [one.logprob for one in part.logprobs]
    plain: Any = ai.responses.create(**asked)
    assert plain.output[0].content[0].logprobs == []


def test_responses_have_schemas_and_tools(ai: OpenAI) -> None:
    form: Any = {"format": {"type": "json_schema", "name": "colour", "schema": COLOURS, "strict": True}}
    asked: dict[str, Any] = {"model": "worker", "input": "Which colour?", "instructions": "Be short."}
    assert json.loads(ai.responses.create(**asked, text=form).output_text)["colour"] in ("red", "green")
    tool: Any = {"type": "function", "name": "paint", "parameters": COLOURS, "strict": True}
    (call,) = ai.responses.create(**asked, tools=[tool], tool_choice="required").output
    assert call.type == "function_call"
    assert call.name == "paint"
    talk: list[Any] = [
        {"role": "user", "content": "Which colour?"},
        {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments},
        {"type": "function_call_output", "call_id": call.call_id, "output": "done"},
    ]
    assert ai.responses.create(model="worker", input=talk, max_output_tokens=16).output_text


def test_a_response_goes_on_with_one_that_is_stored(ai: OpenAI) -> None:
    asked: dict[str, Any] = {"model": "worker", "max_output_tokens": 24}
    first = ai.responses.create(**asked, input=QUESTION[0]["content"])
    second = ai.responses.create(**asked, input="And who sails it?", previous_response_id=first.id, instructions="No.")
    assert second.previous_response_id == first.id
    talk: list[Any] = [*QUESTION, {"role": "assistant", "content": first.output_text}]
    talk += [{"role": "user", "content": "And who sails it?"}]
    whole = ai.responses.create(**asked, input=talk, store=False, instructions="No.")
    assert second.output_text == whole.output_text
    with ai.responses.stream(**asked, input="Why?", previous_response_id=second.id) as stream:
        third = stream.get_final_response()
    for stored in (first, second, third):
        assert ai.responses.retrieve(stored.id).output_text == stored.output_text
    (item,) = ai.responses.input_items.list(second.id).model_dump()["data"]
    assert item["content"][0]["text"] == "And who sails it?"
    with pytest.raises(openai.NotFoundError, match="no response"):
        ai.responses.retrieve(whole.id)
    ai.responses.delete(second.id)
    for gone in (second.id, third.id, "resp_../../x"):
        with pytest.raises(openai.NotFoundError, match="no response"):
            ai.responses.create(**asked, input="Go on.", previous_response_id=gone)
    with pytest.raises(openai.NotFoundError):
        ai.responses.delete(second.id)


def test_a_response_has_a_format_beside_a_tool_that_has_to_be_called(ai: OpenAI) -> None:
    form: Any = {"format": {"type": "json_schema", "name": "n", "schema": LIST, "strict": True}}
    tool: Any = {"type": "function", "name": "paint", "parameters": COLOURS, "strict": True}
    asked: dict[str, Any] = {"model": "worker", "input": "Which colour?", "tools": [tool]}
    (call,) = ai.responses.create(**asked, text=form, tool_choice="required").output
    assert (call.type, call.name) == ("function_call", "paint")


def test_a_response_that_breaks_its_format_is_an_error(ai: OpenAI) -> None:
    """What the grammar cannot express is checked at the end: the items of an enum of one never differ."""
    schema = {"type": "array", "items": {"enum": [1]}, "minItems": 2, "maxItems": 3, "uniqueItems": True}
    form: Any = {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}}
    with pytest.raises(openai.UnprocessableEntityError, match="non-unique"):
        ai.responses.create(model="worker", input="List.", text=form, stream=True)


def test_responses_are_routed_and_whole_runs_too(ai: OpenAI, daemon: Running) -> None:
    assert ai.responses.create(model="auto", input="Count the stars.", max_output_tokens=8).output_text
    text = "Write a Python function that adds two numbers."
    events = list(ai.responses.create(model="orchestrate", input=text, stream=True))
    last = events[-1]
    assert last.type == "response.completed"
    with daemon.client() as client:
        newest = client.get("/v1/runs", params={"limit": 1}).json()["runs"][0]
        assert newest["request"] == text
        assert client.get(f"/v1/runs/{newest['run_id']}/result").json()["answer"] == last.response.output_text


def test_a_streamed_response_calls_a_tool(ai: OpenAI) -> None:
    tool: Any = {"type": "function", "name": "paint", "parameters": COLOURS, "strict": True}
    asked: dict[str, Any] = {"model": "worker", "input": "Which colour?", "tools": [tool]}
    with ai.responses.stream(**asked, tool_choice="required") as stream:
        events = [event for event in stream if event.type == "response.function_call_arguments.done"]
        (call,) = stream.get_final_response().output
    assert call.type == "function_call"
    assert [event.arguments for event in events] == [call.arguments]
    assert json.loads(call.arguments)["colour"] in ("red", "green")


def test_a_response_is_cancelled_when_the_client_disconnects(ai: OpenAI, daemon: Running) -> None:
    form: Any = {"type": "json_schema", "name": "long", "schema": LIST}
    asked: dict[str, Any] = {"model": "worker", "input": "Count.", "text": {"format": form}}
    with cancelled(daemon, LONG):
        stream = ai.responses.create(**asked, max_output_tokens=LONG, temperature=2.0, stream=True)
        assert next(iter(stream)).type == "response.created"
        stream.close()


class Colour(BaseModel):
    """What the client's own `parse` asks for."""

    colour: Literal["red", "green"]


def test_the_clients_own_parsing_streaming_and_waiting_work(ai: OpenAI, daemon: Running) -> None:
    parsed = ai.chat.completions.parse(model="worker", messages=QUESTION, response_format=Colour)
    assert isinstance(parsed.choices[0].message.parsed, Colour)
    assert isinstance(ai.responses.parse(model="worker", input="Which?", text_format=Colour).output_parsed, Colour)
    with ai.chat.completions.stream(model="worker", messages=QUESTION, response_format=Colour) as stream:
        kinds = {event.type for event in stream}
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Colour)
    assert {"chunk", "content.delta", "content.done"} <= kinds
    whole = ask(ai).choices[0].message.content
    assert asyncio.run(awaited(daemon)) == [whole] * 3


async def awaited(daemon: Running) -> list[str]:
    """Return three streamed answers that the asynchronous client gets at the same time."""

    async def one(client: AsyncOpenAI) -> str:
        asked: Any = {"model": "worker", "messages": QUESTION, "max_tokens": 48}
        stream = await client.chat.completions.create(**asked, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async with AsyncOpenAI(base_url=f"http://127.0.0.1:{daemon.port}/v1", api_key=daemon.token) as client:
        return list(await asyncio.gather(*(one(client) for _ in range(3))))


def test_an_answer_ends_at_a_stop_string(ai: OpenAI) -> None:
    whole = ask(ai).choices[0].message.content
    mark = whole[len(whole) // 2 :][:3]
    assert ask(ai, stop=mark).choices[0].message.content == whole[: whole.index(mark)]
    cut = ask(ai, max_tokens=2)
    assert (cut.choices[0].finish_reason, cut.usage.completion_tokens) == ("length", 2)
    assert ask(ai, tools=[PAINT], tool_choice="none").choices[0].message.content == whole


def test_texts_that_share_words_are_near_each_other(ai: OpenAI) -> None:
    texts = ["the ship sails at dawn", "a ship sails at dawn", "quarterly tax figures"]
    answer = ai.embeddings.create(model="lexical", input=texts)
    assert answer.model == "lexical"
    near, other, far = (np.array(line.embedding) for line in answer.data)
    assert np.array_equal(near, embed(texts)[0]), "the same vector as from `embed`"
    assert near @ other > 0.5 > near @ far
    plain = ai.embeddings.create(model="embedder", input=texts, encoding_format="float")
    assert [line.embedding for line in plain.data] == [line.embedding for line in answer.data]
    short = ai.embeddings.create(model="lexical", input=texts[0], dimensions=64)
    assert np.array_equal(short.data[0].embedding, embed(texts[:1], 64)[0])


def test_texts_that_cannot_be_embedded_are_refused(ai: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="accepted: lexical, embedder"):
        ai.embeddings.create(model="worker", input="x")
    refused: list[Any] = ["", [], ["x", ""], [1, 2], ["x", 1], ["x"] * 2049]
    for wrong in refused:
        with pytest.raises(openai.BadRequestError, match="input"):
            ai.embeddings.create(model="lexical", input=wrong)
    with pytest.raises(openai.BadRequestError, match="dimensions"):
        ai.embeddings.create(model="lexical", input="x", dimensions=1 << 20)


@pytest.mark.parametrize("depth", [70, 400, 963, 2000])
def test_deep_nesting_is_never_an_internal_error(client: httpx2.Client, depth: int) -> None:
    nested = "[" * depth + "]" * depth
    tools = [{"type": "function", "function": {"name": name, "parameters": "HERE"}} for name in ("one", "two")]
    asked: dict[str, Any] = {"model": "worker", "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 4}
    deep = json.dumps(asked | {"tools": tools, "tool_choice": "required"}).replace('"HERE"', f'{{"default": {nested}}}')
    extra = json.dumps(asked | {"extra": "HERE"}).replace('"HERE"', nested)
    called = {"id": "1", "type": "function", "function": {"name": "one", "arguments": "[" * depth}}
    said = json.dumps(asked | {"messages": [*asked["messages"], {"role": "assistant", "tool_calls": [called]}]})
    codes = []
    for body in (deep, extra, said):
        answer = client.post("/v1/chat/completions", content=body, headers={"Content-Type": "application/json"})
        codes.append(answer.status_code)
    assert codes[0] == 400
    assert all(code < 500 for code in codes)
