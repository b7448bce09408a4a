"""The model `orchestrate` answers with a run: it shows the plan and the steps, takes files, and is joined again."""

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from openai import OpenAI

from tests.orchestrator.api.daemon_process import (
    RECORDS,
    Running,
    begun_and_left,
    finished,
    lasting,
    running_daemon,
    submitted,
)

SHORT = "Write a Python function that adds two numbers."
COMPARE = "Summarize a.txt and b.txt, then compare them"
LASTING = "Write a Python function that counts the stars."
PAINT: dict[str, Any] = {"type": "function", "function": {"name": "paint", "parameters": {"type": "object"}}}


@pytest.fixture
def ai(daemon: Running) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"http://127.0.0.1:{daemon.port}/v1", api_key=daemon.token, max_retries=0) as client:
        yield client


def asked(*parts: dict[str, Any], text: str = SHORT) -> list[Any]:
    """Return the messages of a chat that asks for this text, with further parts."""
    return [{"role": "user", "content": [{"type": "text", "text": text}, *parts] if parts else text}]


def ask(ai: OpenAI, *parts: dict[str, Any], text: str = SHORT, **more: Any) -> Any:
    """Return a chat completion by a run."""
    return ai.chat.completions.create(**{"model": "orchestrate", "messages": asked(*parts, text=text), **more})


def accepted(client: httpx2.Client, run: str) -> dict[str, Any]:
    """Return the first event of a run."""
    return journaled(client, run)[0]


def journaled(client: httpx2.Client, run: str) -> list[dict[str, Any]]:
    """Return the events of a run that has ended."""
    lines = client.get(f"/v1/runs/{run}/events").raise_for_status().text.splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    return [event for event in events if "kind" in event]


def answer_of(client: httpx2.Client, run: str) -> str:
    return str(client.get(f"/v1/runs/{run}/result").raise_for_status().json()["answer"])


def in_part(name: str) -> dict[str, Any]:
    """Return a record of the examples as a part of a message."""
    data = base64.b64encode((RECORDS / name).read_bytes()).decode()
    return {"type": "file", "file": {"filename": name, "file_data": f"data:text/plain;base64,{data}"}}


def test_a_chat_says_which_run_answers_and_what_the_run_did(ai: OpenAI, client: httpx2.Client) -> None:
    raw = ai.chat.completions.with_raw_response.create(model="orchestrate", messages=asked())
    answer: Any = raw.parse()
    run = raw.headers["X-Run-Id"]
    assert answer.run_id == run
    (choice,) = answer.choices
    assert choice.finish_reason == "stop"
    assert choice.message.content == answer_of(client, run)
    told = choice.message.reasoning_content.splitlines()
    assert told[0] == f"Run {run} is accepted."
    assert told[-1] == "The run is done."
    report = client.get(f"/v1/runs/{run}").json()
    for step in report["steps"]:
        assert step["parent"] or [line for line in told if line.startswith(f"{step['id']}, ")]
        assert f"{step['id']} is done." in told


def test_a_run_that_answers_keeps_the_span_of_its_caller(ai: OpenAI, client: httpx2.Client) -> None:
    span = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    completion = ask(ai, extra_headers={"traceparent": span})
    assert accepted(client, completion.run_id)["traceparent"] == span


def test_a_chat_that_needs_a_missing_file_says_so(ai: OpenAI, client: httpx2.Client) -> None:
    raw = ai.chat.completions.with_raw_response.create(model="orchestrate", messages=asked(text="Summarize zebra.txt."))
    content = str(raw.parse().choices[0].message.content)
    assert "zebra.txt is not here" in content
    report = client.get(f"/v1/runs/{raw.headers['X-Run-Id']}").json()
    assert (report["status"], report["steps"]) == ("failed", [])
    assert report["missing"][0] in content
    refused = client.post("/v1/plans", json={"request": "Summarize zebra.txt."})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "request_incomplete")


def test_a_stream_tells_what_happens_before_the_answer_comes(ai: OpenAI, client: httpx2.Client) -> None:
    raw = ai.chat.completions.with_raw_response.create(model="orchestrate", messages=asked(), stream=True)
    run = raw.headers["X-Run-Id"]
    chunks: list[Any] = list(raw.parse())
    deltas: list[Any] = [chunk.choices[0].delta for chunk in chunks]
    thoughts = [getattr(delta, "reasoning_content", None) for delta in deltas]
    texts = [delta.content for delta in deltas]
    assert "".join(text or "" for text in texts) == answer_of(client, run)
    last_thought = max(at for at, thought in enumerate(thoughts) if thought)
    assert last_thought < min(at for at, text in enumerate(texts) if text)
    assert sum(bool(thought) for thought in thoughts) > 3, "each event is told when it happens"
    assert {chunk.run_id for chunk in chunks} == {run}


def test_a_stream_has_the_events_of_the_run_where_the_client_asks(ai: OpenAI, client: httpx2.Client) -> None:
    chunks: list[Any] = list(ask(ai, stream=True, extra_body={"run_events": True}))
    events = [chunk.run_event for chunk in chunks if not chunk.choices]
    run = events[0]["run_id"]
    assert [event["number"] for event in events] == [*range(1, len(events) + 1)]
    assert [event["event"] for event in events] == journaled(client, run)
    with pytest.raises(openai.BadRequestError, match="run_events"):
        ask(ai, model="worker", extra_body={"run_events": True})


def test_responses_show_the_same(ai: OpenAI, client: httpx2.Client) -> None:
    given: dict[str, Any] = {"model": "orchestrate", "input": SHORT, "extra_body": {"run_events": True}}
    raw = ai.responses.with_raw_response.create(**given, stream=True)
    run = raw.headers["X-Run-Id"]
    events: list[Any] = list(raw.parse())
    of_run = [event for event in events if event.type == "response.run_event"]
    assert [event.event for event in of_run] == journaled(client, run)
    last = events[-1]
    assert (last.type, last.response.run_id) == ("response.completed", run)
    reasoning, message = last.response.output
    assert reasoning.content[0].text.startswith(f"Run {run} is accepted.\n")
    assert message.content[0].text == answer_of(client, run) == last.response.output_text
    assert [event.sequence_number for event in events] == [*range(len(events))]
    stored: Any = ai.responses.retrieve(last.response.id)
    assert stored.run_id == run
    whole = ai.responses.with_raw_response.create(model="orchestrate", input=SHORT, store=False)
    answer: Any = whole.parse()
    assert whole.headers["X-Run-Id"] == answer.run_id != run


def test_messages_name_the_run_too_and_think_only_where_that_is_wanted(client: httpx2.Client) -> None:
    body = {"model": "orchestrate", "max_tokens": 4096, "messages": asked()}
    plain = client.post("/v1/messages", json=body).raise_for_status()
    run = plain.headers["X-Run-Id"]
    assert [block["type"] for block in plain.json()["content"]] == ["text"]
    assert plain.json()["content"][0]["text"] == answer_of(client, run)
    thinking = client.post("/v1/messages", json=body | {"thinking": {"type": "adaptive"}}).raise_for_status()
    assert [block["type"] for block in thinking.json()["content"]] == ["thinking", "text"]


def test_requests_with_one_key_get_the_answer_of_one_run(ai: OpenAI) -> None:
    key: dict[str, Any] = {"extra_headers": {"Idempotency-Key": "add two numbers"}}
    first, second = ask(ai, **key), ask(ai, **key)
    assert first.run_id == second.run_id
    assert first.choices[0].message == second.choices[0].message
    streamed = list(ask(ai, **key, stream=True))
    assert streamed[-1].run_id == first.run_id
    others: list[dict[str, Any]] = [{"text": "Write a Python function."}, {"temperature": 0.5}]
    for other in others:
        with pytest.raises(openai.ConflictError, match="another job"):
            ask(ai, **key, **other)
    with pytest.raises(openai.ConflictError, match="another job"):
        ask(ai, in_part("a.txt"), **key)
    assert ask(ai).run_id != first.run_id, "without a key, the same question is asked anew"


def test_a_client_that_has_lost_its_connection_joins_the_run(daemon: Running, client: httpx2.Client) -> None:
    body = json.dumps({"model": "orchestrate", "messages": asked(text=LASTING)}).encode()
    run = begun_and_left(daemon, body, LASTING)
    headers = {"Content-Type": "application/json", "X-Stainless-Retry-Count": "1"}
    joined = client.post("/v1/chat/completions", content=body, headers=headers)
    assert joined.headers["X-Run-Id"] == run
    assert finished(client, run)["status"] in ("done", "failed"), "it was not cancelled"
    same = [one for one in client.get("/v1/runs").json()["runs"] if one["request"] == LASTING]
    assert [one["run_id"] for one in same] == [run]


def test_clients_come_back_to_their_runs_after_the_daemon_was_restarted(tmp_path: Path) -> None:
    """Both runs wait behind a long one when the daemon is shut down, so they have not ended by then."""
    body = json.dumps({"model": "orchestrate", "messages": asked(text=LASTING)}).encode()
    key = {"Idempotency-Key": "add two numbers"}
    keyed = json.dumps({"model": "orchestrate", "messages": asked()}).encode()
    path, one_at_a_time = "/v1/chat/completions", {"ORCHESTRATOR_RUNS_MAX_RUNNING": "1"}
    with running_daemon(tmp_path / "home", **one_at_a_time) as daemon, daemon.client() as client:
        first = submitted(client, lasting())
        runs = [begun_and_left(daemon, body, LASTING), begun_and_left(daemon, keyed, SHORT, **key)]
    with running_daemon(tmp_path / "home", **one_at_a_time) as daemon, daemon.client() as client:
        client.post(f"/v1/runs/{first}/cancel").raise_for_status()
        client.headers["Content-Type"] = "application/json"
        answers = [client.post(path, content=body), client.post(path, content=keyed, headers=key)]
        assert [answer.raise_for_status().headers["X-Run-Id"] for answer in answers] == runs
        found = [answer.json()["choices"][0]["message"]["content"] for answer in answers]
        assert found == [answer_of(client, run) for run in runs]
        assert len(client.get("/v1/runs").json()["runs"]) == 3, "no run was begun a second time"
        assert client.post(path, content=body).headers["X-Run-Id"] not in runs, "its answer was fetched"


def test_the_options_of_the_client_are_those_of_the_steps(ai: OpenAI, client: httpx2.Client) -> None:
    answer = ask(ai, temperature=0.1, top_p=0.9, seed=7, reasoning_effort="low")
    given = {"temperature": 0.1, "top_p": 0.9, "seed": 7, "thinking": "low"}
    assert accepted(client, answer.run_id)["options"] == given
    response: Any = ai.responses.create(model="orchestrate", input=SHORT, temperature=0.05)
    assert accepted(client, response.run_id)["options"]["temperature"] == 0.05


def test_the_answer_ends_where_the_client_wants_it(ai: OpenAI, client: httpx2.Client) -> None:
    cut = ask(ai, max_tokens=3)
    (choice,) = cut.choices
    whole = answer_of(client, cut.run_id)
    assert choice.finish_reason == "length"
    assert choice.message.content
    assert whole.startswith(choice.message.content)
    written = client.get(f"/v1/runs/{cut.run_id}").json()["steps"][-1]["attempts"][-1]["model"]
    tokens = client.post("/tokenize", json={"content": choice.message.content, "model": written}).json()["tokens"]
    assert len(tokens) <= 3
    response: Any = ai.responses.create(model="orchestrate", input=SHORT, max_output_tokens=3)
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    stop = whole.split()[1]
    stopped = ask(ai, stop=[stop, "never written"])
    assert stopped.choices[0].finish_reason == "stop"
    whole = answer_of(client, stopped.run_id)
    assert stopped.choices[0].message.content == whole.partition(stop)[0]


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("tools", {"tools": [PAINT]}),
        ("response_format", {"response_format": {"type": "json_object"}}),
        ("logprobs", {"logprobs": True}),
        ("logit_bias", {"logit_bias": {"1": 5}}),
        ("presence_penalty", {"presence_penalty": 0.5}),
        ("n", {"n": 2}),
        ("chat_template_kwargs", {"extra_body": {"chat_template_kwargs": {"tone": "calm"}}}),
        ("messages", {"messages": [*asked(), {"role": "assistant", "content": "Well"}]}),
    ],
)
def test_what_a_run_cannot_do_is_refused_by_its_name(ai: OpenAI, name: str, more: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ask(ai, **more)
    assert refused.value.param == name


def test_what_changes_nothing_is_no_reason_to_refuse(ai: OpenAI) -> None:
    neutral: dict[str, Any] = {"presence_penalty": 0, "frequency_penalty": 0, "n": 1, "logit_bias": {}}
    assert ask(ai, tools=[PAINT], tool_choice="none", **neutral).choices[0].message.content


def test_files_in_a_chat_are_inputs_of_the_run(ai: OpenAI, client: httpx2.Client) -> None:
    kept = ai.files.create(file=RECORDS / "b.txt", purpose="user_data")
    answer = ask(ai, in_part("a.txt"), {"type": "file", "file": {"file_id": kept.id}}, text=COMPARE)
    ai.files.delete(kept.id)
    names = ["a.txt", "b.txt"]
    event = accepted(client, answer.run_id)
    assert (event["request"], event["files"]) == (COMPARE, names)
    assert event["prior"] == {name: hashlib.sha256((RECORDS / name).read_bytes()).hexdigest() for name in names}
    begun = [event for event in journaled(client, answer.run_id) if event["kind"] == "attempt_started"]
    read = {one["name"]: one["bytes"] for event in begun for one in event["inputs"]}
    assert {name: read.get(name) for name in names} == {name: (RECORDS / name).stat().st_size for name in names}


def test_the_answer_has_all_that_was_asked_for(ai: OpenAI, client: httpx2.Client) -> None:
    answer = ask(ai, in_part("a.txt"), in_part("b.txt"), text=COMPARE)
    report = client.get(f"/v1/runs/{answer.run_id}").json()
    read = {name for step in report["steps"] for name in step["depends_on"]}
    assert len(read) == len(report["steps"]) - 1, "the frontdoor has planned a comparison after the summaries"
    names = [name for step in report["steps"] for name in step["outputs"]]
    texts = {name: client.get(f"/v1/runs/{answer.run_id}/artifacts/{name}").text.strip() for name in names}
    wanted = "\n\n".join(f"[{name}]\n{text}" for name, text in texts.items())
    assert answer.choices[0].message.content == wanted, "the summaries and the comparison"


def test_files_of_responses_are_inputs_too(ai: OpenAI, client: httpx2.Client) -> None:
    part = in_part("a.txt")["file"]
    content: list[Any] = [{"type": "input_file", **part}, {"type": "input_text", "text": "Summarize a.txt."}]
    response: Any = ai.responses.create(model="orchestrate", input=[{"role": "user", "content": content}])
    assert accepted(client, response.run_id)["files"] == ["a.txt"]
    again: Any = ai.responses.create(
        model="orchestrate", input="Summarize a.txt again.", previous_response_id=response.id
    )
    assert accepted(client, again.run_id)["files"] == ["a.txt"], "the file belongs to the conversation"


def test_only_runs_take_files_and_only_those_that_are_text(ai: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="messages/0/content/1: is a file; accepted: text"):
        ask(ai, in_part("a.txt"), model="worker")
    for file, message in [
        ({"file_id": "file-1"}, "messages/0/content/1/file_id: there is no file 'file-1'"),
        ({"file_data": "/w==", "filename": "a.txt"}, "a.txt is no text in UTF-8"),
        ({"filename": "a.txt"}, "has neither file_id nor file_data, or both"),
    ]:
        with pytest.raises(openai.BadRequestError, match=message):
            ask(ai, {"type": "file", "file": file})
    with pytest.raises(openai.BadRequestError, match="image_url"):
        ask(ai, {"type": "image_url", "image_url": {"url": "x"}})


def test_files_are_uploaded_listed_read_and_deleted(ai: OpenAI, client: httpx2.Client) -> None:
    data = b"one\r\n\0\xff"
    first = ai.files.create(file=("notes/one.bin", data), purpose="user_data")
    second = ai.files.create(file=("two.txt", b""), purpose="batch")
    assert (first.filename, first.bytes, first.purpose, first.object) == ("one.bin", len(data), "user_data", "file")
    assert ai.files.retrieve(first.id) == first
    assert ai.files.content(first.id).read() == data
    assert [file.id for file in ai.files.list(limit=1)] == [second.id, first.id], "the client reads page after page"
    assert [file.id for file in ai.files.list(order="asc")] == [first.id, second.id]
    assert [file.id for file in ai.files.list(purpose="batch")] == [second.id]
    assert ai.files.delete(first.id).deleted
    ways: list[Any] = [ai.files.retrieve, ai.files.content, ai.files.delete]
    for gone in ways:
        with pytest.raises(openai.NotFoundError, match="there is no file"):
            gone(first.id)
    assert client.get("/files").json()["data"][0]["id"] == second.id, "the paths without the version are there, too"
    ai.files.delete(second.id)
    assert client.get("/v1/files").json() == {
        "object": "list",
        "data": [],
        "first_id": None,
        "last_id": None,
        "has_more": False,
    }


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"data": {"purpose": "user_data"}}, "file: is missing"),
        ({"files": {"file": ("a.txt", b"1")}}, "purpose: is missing"),
        ({"files": {"file": ("..", b"1")}, "data": {"purpose": "user_data"}}, "is no name of a file"),
        (
            {"files": {"file": ("a", b"1")}, "data": {"purpose": "user_data", "expires_after[seconds]": "1"}},
            "expires_after: is not supported",
        ),
    ],
)
def test_what_is_no_upload_is_refused(client: httpx2.Client, body: dict[str, Any], message: str) -> None:
    answer = client.post("/v1/files", **body)
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]


TIPS = "Give me 12 tips about a.txt."


def test_a_doubtful_answer_is_marked_wherever_it_is_shown(ai: OpenAI, client: httpx2.Client) -> None:
    raw = ai.chat.completions.with_raw_response.create(model="orchestrate", messages=asked(in_part("a.txt"), text=TIPS))
    answer: Any = raw.parse()
    run, doubt = answer.run_id, answer.run_doubt
    assert doubt.startswith("You asked for 12 tips; the answer has ")
    assert raw.headers["X-Run-Doubt"] == doubt
    (choice,) = answer.choices
    assert doubt not in choice.message.content, "the answer itself is as it was written"
    told = choice.message.reasoning_content.splitlines()
    assert told[-2:] == ["The run is done.", f"Its answer is doubtful: {doubt}"]
    result = client.get(f"/v1/runs/{run}/result").json()
    assert (result["status"], result["doubt"], result["answer"]) == ("done", doubt, choice.message.content)
    assert client.get(f"/v1/runs/{run}").json()["doubt"] == doubt
    (line,) = [line for line in client.get("/v1/runs").json()["runs"] if line["run_id"] == run]
    assert line["doubt"] == doubt
    metrics = client.get("/metrics").text.splitlines()
    (counted,) = [line for line in metrics if line.startswith("orchestrator_runs_doubtful_total ")]
    assert float(counted.split()[1]) >= 1


def test_streams_and_responses_say_that_an_answer_is_doubtful(ai: OpenAI) -> None:
    chunks = list(ask(ai, in_part("a.txt"), text=TIPS, stream=True))
    doubts = {getattr(chunk, "run_doubt", None) for chunk in chunks} - {None}
    assert len(doubts) == 1
    given: Any = [{"role": "user", "content": [{"type": "input_text", "text": f"{TIPS}\n\nThe text: it rains."}]}]
    whole: Any = ai.responses.create(model="orchestrate", input=given)
    assert whole.run_doubt.startswith("You asked for 12 tips; ")
    events: list[Any] = list(ai.responses.create(model="orchestrate", input=given, stream=True))
    assert events[-1].response.run_doubt.startswith("You asked for 12 tips; ")
